"""ZB-H1, ZB-H2, 1F1B and interleaved 1F1B against the zero-bubble paper's identities and its table 5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.generators.interleaved import interleaved
from dtk.pipeline.generators.one_f_one_b import one_f_one_b
from dtk.pipeline.generators.zb_h1 import zb_h1
from dtk.pipeline.generators.zb_h2 import zb_h2
from tests.pipeline.generators.timeline import execute

sizes = st.tuples(st.integers(1, 8), st.integers(0, 24))
times = st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))


def _costs(values: tuple[int, int, int]) -> dict[str, int]:
    """Return the three times with the weight gradient's the shortest, as in the paper's profiles."""
    weight_grad, *others = sorted(values)
    return {"forward": others[0], "input_grad": others[1], "weight_grad": weight_grad}


@given(sizes, times)
def test_extra_time_of_zb_h1(size: tuple[int, int], values: tuple[int, int, int]) -> None:
    (num_ranks, more), costs = size, _costs(values)
    extra = execute(zb_h1(num_ranks, num_ranks + more), **costs).makespan - (num_ranks + more) * sum(values)
    assert extra == (num_ranks - 1) * (costs["forward"] + costs["input_grad"] - costs["weight_grad"])


@given(sizes, times)
def test_extra_time_of_zb_h2(size: tuple[int, int], values: tuple[int, int, int]) -> None:
    (num_ranks, more), costs = size, _costs(values)
    num_microbatches = 2 * num_ranks - 1 + more
    timeline = execute(zb_h2(num_ranks, num_microbatches), **costs)
    extra = timeline.longest_own_time - num_microbatches * sum(values)
    assert extra == (num_ranks - 1) * (costs["forward"] + costs["input_grad"] - 2 * costs["weight_grad"])


@given(sizes, times)
def test_extra_time_of_1f1b(size: tuple[int, int], values: tuple[int, int, int]) -> None:
    num_ranks, num_microbatches = size[0], size[1] + 1
    timeline = execute(one_f_one_b(num_ranks, num_microbatches), **_costs(values))
    assert timeline.makespan == (num_microbatches + num_ranks - 1) * sum(values)


# Table 9's profiles (M, T_F, T_B, T_W, T_comm in microseconds) and table 5's bubble rates.
PROFILES = {
    (8, 3): [
        (24, (18522, 18086, 9337, 601), (0.2431, 0.1055, 0.1585, 0.1083)),
        (32, (18513, 18086, 9331, 626), (0.1985, 0.0818, 0.1242, 0.0837)),
        (64, (18546, 18097, 9321, 762), (0.1240, 0.0443, 0.0674, 0.0444)),
    ],
    (8, 4): [
        (24, (29718, 29444, 19927, 527), (0.2347, 0.0808, 0.1323, 0.0698)),
        (32, (29802, 29428, 19530, 577), (0.1898, 0.0628, 0.1045, 0.0559)),
        (64, (29935, 29621, 19388, 535), (0.1091, 0.0320, 0.0554, 0.0294)),
    ],
    (16, 3): [
        (48, (11347, 11248, 8132, 377), (0.2552, 0.1104, 0.1397, 0.0672)),
        (64, (11307, 11254, 8101, 379), (0.2082, 0.0852, 0.1088, 0.0516)),
        (128, (11325, 11308, 8109, 378), (0.1251, 0.0445, 0.0576, 0.0266)),
    ],
    (32, 2): [
        (96, (10419, 10207, 7715, 408), (0.2646, 0.1493, 0.1421, 0.0641)),
        (128, (10408, 10204, 7703, 408), (0.2168, 0.1164, 0.1106, 0.0490)),
        (256, (10402, 10248, 7698, 460), (0.1352, 0.0624, 0.0594, 0.0257)),
    ],
}


@pytest.mark.parametrize(("num_ranks", "num_chunks"), PROFILES)
def test_published_bubble_rates(num_ranks: int, num_chunks: int) -> None:
    for num_microbatches, profile, published in PROFILES[num_ranks, num_chunks]:
        # In units of 1/12 microsecond a chunk's share of a stage's times is a whole number.
        names = ("forward", "input_grad", "weight_grad", "transfer")
        whole = dict(zip(names, (12 * time for time in profile), strict=True))
        chunk = {name: time // num_chunks for name, time in whole.items()} | {"transfer": whole["transfer"]}
        busy = num_microbatches * 12 * sum(profile[:3])
        durations = (
            execute(one_f_one_b(num_ranks, num_microbatches), **whole).makespan,
            execute(interleaved(num_ranks, num_chunks, num_microbatches), **chunk).makespan,
            execute(zb_h1(num_ranks, num_microbatches), **whole).makespan,
            execute(zb_h2(num_ranks, num_microbatches), **whole).longest_own_time,
        )
        bubbles = [1 - busy / duration for duration in durations]
        # The authors' script charges interleaved's wrap-around only in part.
        for bubble, cell, tolerance in zip(bubbles, published, (1e-4, 5e-3, 1e-4, 1e-4), strict=True):
            assert bubble == pytest.approx(cell, abs=tolerance)
