"""Commands run in this process set torch's threads, as commands may; each test gets them back."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _give_torch_its_threads_back() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
