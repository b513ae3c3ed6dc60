"""The roofline's arithmetic, against figures worked out by hand."""

import pytest

from dtk.scout.bench.roofline import intensity, kv_bytes, roofline_bytes_per_s


def test_bytes_of_kv() -> None:
    # Batch 4, 8 KV heads, 2048 tokens, head size 128: 2^23 elements of K and as many of V.
    assert kv_bytes(4, 8, 2048, 128, "fp32") == 2 * 2**23 * 4
    assert kv_bytes(4, 8, 2048, 128, "fp16") == kv_bytes(4, 8, 2048, 128, "bf16") == 2 * 2**23 * 2


@pytest.mark.parametrize(
    ("group_size", "dtype", "expected"),
    [(1, "fp32", 0.25), (4, "fp32", 1.0), (1, "bf16", 0.5), (16, "fp16", 8.0)],
)
def test_intensity(group_size: int, dtype: str, expected: float) -> None:
    assert intensity(group_size, dtype) == expected


@pytest.mark.parametrize(
    ("group_size", "dtype", "expected"),
    [
        (1, "fp32", 20e9),  # 60e9 multiply-adds would allow 240e9 bytes
        (4, "fp32", 20e9),
        (16, "fp32", 15e9),
        (4, "bf16", 20e9),
        (8, "bf16", 15e9),
    ],
)
def test_the_lesser_limit_counts(group_size: int, dtype: str, expected: float) -> None:
    assert roofline_bytes_per_s(20e9, 60e9, group_size, dtype) == pytest.approx(expected)
