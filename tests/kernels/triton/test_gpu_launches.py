"""How kernels are launched, which only a GPU can show: without waiting, into graphs, alike every time."""

from collections.abc import Iterator

import pytest
import torch

from tests.kernels.triton.gpu_calls import OPERATIONS, gpu_call

pytestmark = pytest.mark.gpu


@pytest.fixture
def _waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_host_does_not_wait(operation: str, request: pytest.FixtureRequest) -> None:
    call = gpu_call(operation)
    call.run()  # compiles
    request.getfixturevalue("_waiting_is_an_error")
    call.run()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cuda_graphs_see_new_data(operation: str) -> None:
    call = gpu_call(operation)
    first = [result.clone() for result in call.run()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call.run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call.run()
    graph.replay()
    assert all(map(torch.equal, results, first))
    call.varied.copy_(call.varied.roll(1, dims=-1) + 1)
    graph.replay()
    assert not all(map(torch.equal, results, first))
    replayed = [result.clone() for result in results]
    assert all(map(torch.equal, replayed, call.run()))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_are_the_same_every_time(operation: str) -> None:
    call = gpu_call(operation)
    first = [result.clone() for result in call.run()]
    for _ in range(10):
        assert all(map(torch.equal, call.run(), first))
