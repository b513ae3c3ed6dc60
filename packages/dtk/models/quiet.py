"""Keeps transformers and the hub client from writing progress bars and advice to the terminal.

The one place that touches their global switches; each is put back afterwards. Left out: threads. Two threads
inside the block at once may put the switches back in the wrong order, which changes what is printed only.
"""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_transformers"]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the bars of transformers and of the hub client, and transformers' messages below errors."""
    from huggingface_hub.constants import HF_HUB_DISABLE_PROGRESS_BARS
    from transformers.utils import logging

    # transformers' switch also drives the hub client's. A user who set the variable has decided already,
    # and the client warns when it is overruled.
    switch_bars = logging.is_progress_bar_enabled() and HF_HUB_DISABLE_PROGRESS_BARS is None
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    if switch_bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if switch_bars:
            logging.enable_progress_bar()
