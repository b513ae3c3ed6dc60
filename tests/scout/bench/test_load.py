"""The load of others, on clocks of the test's own and on this machine."""

import subprocess
import sys
import time

import pytest

from dtk.scout.bench.load import OtherLoad, machine_busy_s, own_busy_s


def test_what_is_not_ours_is_others() -> None:
    load = OtherLoad(
        machine=iter([100.0, 118.0]).__next__,
        own=iter([3.0, 13.0]).__next__,
        clock=iter([50.0, 60.0]).__next__,
    )
    assert load.cores() == pytest.approx((18 - 10) / 10)


@pytest.mark.parametrize(("own_s", "wall_s"), [(9.0, 2.0), (1.0, 0.0)])
def test_it_is_never_negative(own_s: float, wall_s: float) -> None:
    # The machine's clock ticks in hundredths of a second.
    load = OtherLoad(
        machine=iter([0.0, 8.0]).__next__, own=iter([0.0, own_s]).__next__, clock=iter([0.0, wall_s]).__next__
    )
    assert load.cores() == 0.0


def test_the_clocks_count_busy_seconds() -> None:
    machine, own = machine_busy_s(), own_busy_s()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert own_busy_s() - own == pytest.approx(0.1, abs=0.2)
    assert machine_busy_s() - machine > 0.3
