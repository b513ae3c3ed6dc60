from hypothesis import given
from hypothesis import strategies as st

from dtk.zeropp.planning.spaces import divisors


@given(st.integers(1, 3000))
def test_divisors_are_what_divides(number: int) -> None:
    assert divisors(number) == tuple(each for each in range(1, number + 1) if number % each == 0)


def test_a_large_prime_takes_no_time() -> None:
    assert divisors(1_000_000_007) == (1, 1_000_000_007)
