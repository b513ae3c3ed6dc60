"""What all kernel tests share: results that a kernel forgets to write are NaN."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _poisoned_results() -> Iterator[None]:
    """Make `torch.empty` return NaN (or the largest integer) instead of what happens to lie there."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before, warn_only=warn_only)
