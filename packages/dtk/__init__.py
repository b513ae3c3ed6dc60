"""dtk: four papers by Ding Tang and co-authors as one toolkit. It holds the version, no more."""

__all__ = ["__version__"]

__version__ = "0.1.0"
