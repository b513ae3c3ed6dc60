"""ScoutAttention (arXiv 2603.27138): decode with the KV cache offloaded to host memory.

The device keeps a fixed budget of important KV blocks a layer; the CPU attends to the important blocks that
are missing there, one layer ahead, with a predicted query; now and then the missing blocks are recalled.

    from dtk.scout import ScoutConfig, attach

    with attach(model, ScoutConfig(budget_tokens=1024, block_size=32)) as session:
        model.generate(**inputs, cache=session.new_cache())

Importing this package is cheap: torch and transformers come with the first use of `attach` or `generate`.
"""

from typing import TYPE_CHECKING, Any

from dtk.scout.config import ScoutConfig

if TYPE_CHECKING:
    from dtk.scout.generation import GenerationReport, generate
    from dtk.scout.session import ScoutSession, attach

__all__ = ["GenerationReport", "ScoutConfig", "ScoutSession", "attach", "generate"]

_LAZY = {
    "GenerationReport": "dtk.scout.generation",
    "ScoutSession": "dtk.scout.session",
    "attach": "dtk.scout.session",
    "generate": "dtk.scout.generation",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
