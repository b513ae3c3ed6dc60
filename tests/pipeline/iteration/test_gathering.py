import pytest

from dtk.pipeline.generators.registry import make_schedule
from dtk.pipeline.iteration.gathering import gather_each_pass
from dtk.pipeline.validate import validate


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_every_pass_gathers_and_every_backward_reduces(name: str) -> None:
    schedule = make_schedule(name, num_ranks=2, num_chunks=1, num_microbatches=3)
    gathered = gather_each_pass(schedule)
    validate(gathered)
    assert gathered.compute_only().actions == schedule.compute_only().actions
    for row in gathered.actions:
        text = [str(action).removeprefix(str(row[0].stage)) for action in row]
        assert text.count("UNSHARD") == text.count("RESHARD") == 6
        assert text.count("REDUCE_GRAD") == 3


def test_a_weight_gradient_gathers_nothing() -> None:
    schedule = make_schedule("zb-h1", num_ranks=2, num_chunks=1, num_microbatches=2)
    row = [str(action) for action in gather_each_pass(schedule).actions[0]]
    place = row.index("0W0")
    assert row[place + 1] == "0REDUCE_GRAD"
    assert row[place - 1] != "0UNSHARD"
    assert row.count("0UNSHARD") == 4
