"""Where one layer's KV blocks live: a fixed set of slots on the device, every closed block in host memory.

A row is what one block selection serves: a sequence, or a (sequence, KV head) pair where each KV head selects
for itself. Pools are `[rows * places, KV heads of a row, block size, head size]`, so a place's flat id is
`row * places + place`. Block ids count within a row from the first token; host capacity and device slots are
different numbers on purpose, and so are their ids.
"""

import torch
from torch import Tensor

from dtk_kernels.kv import scatter_blocks_

__all__ = ["DeviceTier", "HostTier"]


class HostTier:
    """Inclusive host copy: every block is written once, when it closes, so that eviction needs no write-back.

    Attributes:
        keys: [rows * capacity, KV heads, block size, head size] on the CPU; likewise `values`. Pageable: what
            goes to a GPU goes through small pinned buffers.
        capacity: Blocks that fit in each row before the pools grow.
    """

    def __init__(self, rows: int, capacity: int, block_shape: tuple[int, int, int], dtype: torch.dtype):
        self._rows = rows
        self._block_shape = block_shape
        self._dtype = dtype
        self.capacity = capacity
        self.keys = self._allocate(rows * capacity)
        self.values = self._allocate(rows * capacity)

    @property
    def num_bytes(self) -> int:
        """Bytes allocated for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, blocks: int) -> None:
        """Make room for `blocks` blocks a row; no job may be reading the pools."""
        if blocks <= self.capacity:
            return
        grown = max(blocks, self.capacity + self.capacity // 2)
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = self._allocate(self._rows * grown)
            new.view(self._rows, grown, *self._block_shape)[:, : self.capacity] = old.view(
                self._rows, self.capacity, *self._block_shape
            )
            setattr(self, name, new)
        self.capacity = grown

    def write(self, rows: Tensor, blocks: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store K/V ([n, KV heads, block size, head size] each) as blocks `blocks[i]` of rows `rows[i]`."""
        ids = (rows * self.capacity + blocks).to("cpu", torch.int32)
        scatter_blocks_(self.keys, ids, keys.to("cpu"))
        scatter_blocks_(self.values, ids, values.to("cpu"))

    def row(self, row: int, blocks: int) -> tuple[Tensor, Tensor]:
        """Return views of the first `blocks` blocks of a row: keys and values."""
        start = row * self.capacity
        return self.keys[start : start + blocks], self.values[start : start + blocks]

    def select_rows(self, rows: Tensor) -> None:
        """Keep the given rows, in the given order and with repeats (batch selection, beam search)."""
        for name in ("keys", "values"):
            pool: Tensor = getattr(self, name)
            picked = pool.view(self._rows, self.capacity, *self._block_shape).index_select(0, rows.cpu())
            setattr(self, name, picked.flatten(0, 1))
        self._rows = len(rows)

    def _allocate(self, blocks: int) -> Tensor:
        # Named, for torch's default device may be another one.
        return torch.empty((blocks, *self._block_shape), dtype=self._dtype, device="cpu")


class DeviceTier:
    """The resident blocks of one layer: a slot for each in every row, and one more for the partial tail.

    Attributes:
        keys: [rows * slots, KV heads, block size, head size]; likewise `values`.
        lengths: int32 [rows, slots], tokens to attend to in each slot; 0 where the slot holds nothing.
        block_of_slot: int32 [rows, slots], -1 for the tail's slot and for empty ones.
        slot_of_block: int32 [rows, capacity], -1 for blocks that are not resident.
        tail_slot: int64 [rows].
    """

    def __init__(
        self,
        rows: int,
        slots: int,
        block_shape: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.slots = slots
        self.block_size = block_shape[1]
        pool_shape = (rows * self.slots, *block_shape)
        self.keys = torch.zeros(pool_shape, dtype=dtype, device=device)
        self.values = torch.zeros(pool_shape, dtype=dtype, device=device)
        self.lengths = torch.zeros(rows, self.slots, dtype=torch.int32, device=device)
        self.block_of_slot = torch.full((rows, self.slots), -1, dtype=torch.int32, device=device)
        self.slot_of_block = torch.full((rows, 0), -1, dtype=torch.int32, device=device)
        self.tail_slot = torch.full((rows,), slots - 1, dtype=torch.int64, device=device)

    @property
    def rows(self) -> int:
        """Rows of the tier."""
        return self.lengths.shape[0]

    @property
    def num_bytes(self) -> int:
        """Bytes allocated for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, blocks: int) -> None:
        """Make the block map at least `blocks` wide."""
        missing = blocks - self.slot_of_block.shape[1]
        if missing > 0:
            grown = missing + blocks // 2
            self.slot_of_block = torch.nn.functional.pad(self.slot_of_block, (0, grown), value=-1)

    def add_slots(self, count: int) -> None:
        """Give every row `count` more, empty slots; nothing may be reading or filling the pools."""
        for name in ("keys", "values"):
            pool: Tensor = getattr(self, name)
            by_row = pool.unflatten(0, (self.rows, self.slots))
            empty = by_row.new_zeros(self.rows, count, *pool.shape[1:])
            setattr(self, name, torch.cat([by_row, empty], dim=1).flatten(0, 1))
        self.lengths = torch.nn.functional.pad(self.lengths, (0, count))
        self.block_of_slot = torch.nn.functional.pad(self.block_of_slot, (0, count), value=-1)
        self.slots += count

    def flat_ids(self) -> Tensor:
        """Return int32 [rows, slots]: the pool id of each slot."""
        count = self.rows * self.slots
        return torch.arange(count, dtype=torch.int32, device=self.lengths.device).view(self.rows, self.slots)

    def place(self, row: int, blocks: Tensor, keys: Tensor, values: Tensor) -> None:
        """Make `blocks` (int64 ids) of a row with no residents yet resident in its first slots."""
        count = len(blocks)
        start = row * self.slots
        self.keys[start : start + count] = keys
        self.values[start : start + count] = values
        self.lengths[row, :count] = self.block_size
        self.block_of_slot[row, :count] = blocks.to(torch.int32)
        self.slot_of_block[row, blocks] = torch.arange(count, dtype=torch.int32, device=blocks.device)

    def set_tail(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Write the partial tail block of a row: [KV heads, tokens, head size], fewer tokens than a block."""
        tokens = keys.shape[1]
        slot = int(self.tail_slot[row])
        self.keys[row * self.slots + slot, :, :tokens] = keys
        self.values[row * self.slots + slot, :, :tokens] = values
        self.lengths[row, slot] = tokens

    def tail(self, row: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return views of the first `tokens` tokens of a row's tail block, [KV heads, tokens, head size]."""
        flat = row * self.slots + int(self.tail_slot[row])
        return self.keys[flat, :, :tokens], self.values[flat, :, :tokens]

    def append(self, keys: Tensor, values: Tensor, tail_tokens: Tensor) -> None:
        """Append a token a row ([rows, KV heads, head size]) behind its `tail_tokens` (int64 [rows])."""
        row = torch.arange(self.rows, device=keys.device)
        flat = row * self.slots + self.tail_slot
        self.keys[flat, :, tail_tokens] = keys
        self.values[flat, :, tail_tokens] = values
        self.lengths[row, self.tail_slot] = (tail_tokens + 1).to(torch.int32)

    def adopt_tails(self, rows: Tensor, blocks: Tensor) -> None:
        """Make the full tail of each of `rows` the resident block `blocks[i]` (int64 [n] each)."""
        closing = self.tail_slot[rows]
        self.block_of_slot[rows, closing] = blocks.to(torch.int32)
        self.slot_of_block[rows, blocks] = closing.to(torch.int32)

    def open_tails(self, rows: Tensor, slot_rank: Tensor) -> None:
        """Give each of `rows` an empty tail in the slot of lowest rank (fp32 [n, slots]), evicting there."""
        slots = slot_rank.argmin(dim=1)
        self.vacate(rows, slots)
        self.tail_slot[rows] = slots

    def vacate(self, rows: Tensor, slots: Tensor) -> None:
        """Empty the given slots; the blocks in them are resident no longer."""
        evicted = self.block_of_slot[rows, slots].long()
        held = evicted >= 0
        self.slot_of_block[rows[held], evicted[held]] = -1
        self.block_of_slot[rows, slots] = -1
        self.lengths[rows, slots] = 0

    def publish(self, rows: Tensor, slots: Tensor, blocks: Tensor) -> None:
        """Declare that `blocks` now lie complete in `slots` (all int64 [n])."""
        self.block_of_slot[rows, slots] = blocks.to(torch.int32)
        self.slot_of_block[rows, blocks] = slots.to(torch.int32)
        self.lengths[rows, slots] = self.block_size

    def slot_ranks(self, block_rank: Tensor, keep: Tensor) -> Tensor:
        """Rank the slots for reuse, lowest first: empty ones (an open tail's too), then by `block_rank`.

        Args:
            block_rank: fp32 [rows, blocks], for example the selection scores.
            keep: bool [rows, blocks], residents that must stay.

        Returns:
            fp32 [rows, slots], +inf for slots that must not be reused.
        """
        occupant = self.block_of_slot.long().clamp_min(0)
        rank = block_rank.gather(1, occupant).masked_fill(keep.gather(1, occupant), torch.inf)
        return rank.masked_fill(self.block_of_slot < 0, -torch.inf)

    def select_rows(self, rows: Tensor) -> None:
        """Keep the given rows, in the given order and with repeats."""
        for name in ("keys", "values"):
            pool: Tensor = getattr(self, name)
            setattr(
                self, name, pool.unflatten(0, (self.rows, self.slots)).index_select(0, rows).flatten(0, 1)
            )
        for name in ("lengths", "block_of_slot", "slot_of_block", "tail_slot"):
            setattr(self, name, getattr(self, name).index_select(0, rows))
