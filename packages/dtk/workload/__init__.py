"""What is trained: transformer shapes and jobs, counted exactly (parameters, FLOPs, bytes), without times.

Times and collectives are the cost model's. Only dense decoders of the GPT and Llama families are described:
no experts, no encoder, no attention window.
"""

from dtk.workload.activations import ActivationSettings
from dtk.workload.job import Layout, TrainingJob
from dtk.workload.reading import load_shape
from dtk.workload.transformer import TransformerShape

__all__ = ["ActivationSettings", "Layout", "TrainingJob", "TransformerShape", "load_shape"]
