"""Our attention kernel against the roofline, torch's best and llama.cpp: `dtk scout bench kernel`.

Options pass through: `python benchmarks/attention_kernel.py --threads 2 --out bench`.
"""

import sys

from dtk.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["scout", "bench", "kernel", "--scaling", *sys.argv[1:]]))
