"""Checks the Triton kernels on one NVIDIA GPU, then times them beside their peers, in under five minutes.

`python benchmarks/gpu_kernels.py` runs it. Values come first: every kernel in bf16, fp16 and fp32 against
float64, and only what is right is timed. Times are medians of rounds in which all contenders take turns, on
sets of data that together do not fit the caches, as successive layers of a model would have it. Left out:
other GPUs than the first one, and kernels of other families.

The modules: `cases` (what is run, and its bytes), `checks` and `answers` (values), `problems`, `peers` and
`tune` (what is called), `timing` (how), `bench` (in what order), `report` (what comes out), `run` (the
command line).
"""

__all__: list[str] = []
