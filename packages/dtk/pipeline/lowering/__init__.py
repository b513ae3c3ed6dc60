"""Passes from schedule to schedule: joined backwards, then parameters and gradients, then transfers.

Each is a function without state that returns a new schedule; run them in this order.
"""

from dtk.pipeline.lowering.backward import merge_backward, split_backward
from dtk.pipeline.lowering.parameters import add_parameters
from dtk.pipeline.lowering.transfers import add_transfers

__all__ = ["add_parameters", "add_transfers", "merge_backward", "split_backward"]
