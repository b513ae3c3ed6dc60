"""dtk: four papers by Ding Tang and co-authors as one toolkit. This module holds the version and nothing else."""

__all__ = ["__version__"]

__version__ = "0.1.0"
