from tests.real_model import smollm2

__all__ = ["smollm2"]
