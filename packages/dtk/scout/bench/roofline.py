"""The roofline of decode attention: what memory and multiply-adds allow. Plain arithmetic.

Attention reads each K and V element once and does one multiply-add with it for each query head of its GQA
group; the softmax is not counted. So the arithmetic intensity is group_size / element_bytes multiply-adds a
byte, and at most min(read bandwidth, multiply-add rate / intensity) bytes of K/V can be handled a second.
"""

__all__ = ["ELEMENT_BYTES", "intensity", "kv_bytes", "roofline_bytes_per_s"]

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def kv_bytes(batch: int, kv_heads: int, tokens: int, head_dim: int, dtype: str) -> int:
    """Return the bytes of K and V that attention to `tokens` tokens a sequence reads."""
    return 2 * batch * kv_heads * tokens * head_dim * ELEMENT_BYTES[dtype]


def intensity(group_size: int, dtype: str) -> float:
    """Return the multiply-adds for each byte of K/V."""
    return group_size / ELEMENT_BYTES[dtype]


def roofline_bytes_per_s(
    read_bandwidth_bytes_per_s: float, multiply_adds_per_s: float, group_size: int, dtype: str
) -> float:
    """Return the most bytes of K/V a second that the two limits allow."""
    return min(read_bandwidth_bytes_per_s, multiply_adds_per_s / intensity(group_size, dtype))
