"""What all kernel tests share: results that a kernel forgets to write are NaN; workers of both kinds."""

from collections.abc import Iterator

import pytest
import torch

from dtk_kernels.workers import Workers


@pytest.fixture(autouse=True)
def _poisoned_results() -> Iterator[None]:
    """Make `torch.empty` return NaN (or the largest integer) instead of what happens to lie there."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before, warn_only=warn_only)


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.native), "python"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which threads `Workers` gets."""
    if request.param == "python":
        monkeypatch.setattr("dtk_kernels.workers.native_module", lambda: None)
        monkeypatch.setattr("dtk_kernels.workers.warn_of_reference", lambda: None)
    return str(request.param)


@pytest.fixture
def workers(kind: str) -> Iterator[Workers]:
    with Workers(2) as made:
        yield made
