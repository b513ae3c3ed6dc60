"""Every value, midpoint and neighbour, and every 16-bit number, through each path of the quantisers.

Blocks hold the format's largest value, so that their scale is 1 and codes are those of the elements.
"""

import numpy as np
import pytest
import torch

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS
from tests.kernels.implementations import DIRECT
from tests.kernels.quant.oracles import MAX, decode_table, midpoints_and_neighbours, nearest_codes

# Elements of a block: one vector, several, a part of one, long with a part at the end.
SIZES = [8, 16, 32, 64, 5, 256, 300]


def numbers(name: str, dtype: torch.dtype) -> torch.Tensor:
    """All 16-bit numbers up to the largest value, or the places where float32 rounds differently."""
    if dtype == torch.float32:
        every = torch.from_numpy(midpoints_and_neighbours(name))
    else:
        every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    return every[every.abs() <= MAX[name]]


def in_blocks(y: torch.Tensor, size: int, largest: float) -> torch.Tensor:
    """Rows of `size` elements, of which the last one is the largest value."""
    rows = -(-len(y) // (size - 1))
    x = torch.zeros(rows, size, dtype=y.dtype)
    x[:, :-1] = torch.nn.functional.pad(y, (0, rows * (size - 1) - len(y))).reshape(rows, size - 1)
    x[:, -1] = largest
    return x


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale_format", ["fp32", "e8m0"])
@pytest.mark.parametrize("name", FORMATS)
def test_codes_and_values(name: str, scale_format: str, dtype: torch.dtype, implementation: str) -> None:
    y = numbers(name, dtype)
    for size in SIZES:
        rows = in_blocks(y, size, MAX[name])
        codes = nearest_codes(rows.double().numpy(), name)
        values = decode_table(FORMATS[name])[codes.view(np.uint8)]
        for x, block, turned in (
            (rows, (1, None), False),
            (rows.reshape(1, -1), (1, size), False),
            (rows.t().contiguous(), (size, 1), True),
            (rows, None, False),
        ):
            options = {"block": block, "scale_format": scale_format, "implementation": implementation}
            computed, scales = quant.quantize(x, name, **options)
            assert isinstance(scales, torch.Tensor)
            assert (scales.float() == 1).all()
            fake = quant.fake_quantize(x, name, **options)
            computed, fake = (one.t() if turned else one.reshape(rows.shape) for one in (computed, fake))
            np.testing.assert_array_equal(computed.numpy(), codes)
            np.testing.assert_array_equal(fake.double().numpy(), values)
            np.testing.assert_array_equal(np.signbit(fake.double().numpy()), np.signbit(values))
