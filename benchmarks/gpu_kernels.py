"""The Triton kernels on one NVIDIA GPU, in five minutes: values, then times beside torch and FlashInfer.

`python benchmarks/gpu_kernels.py --json gpu.json`; `--help` lists the options. Without a GPU it says so and
ends with exit code 3. The code is in `dtk_kernels.gpu_bench`.
"""

import sys

from dtk_kernels.gpu_bench.run import main

if __name__ == "__main__":
    sys.exit(main())
