"""One offloaded layer: the decode step of ScoutAttention's Algorithm 1 over the two tiers.

A step has two calls. `predict` comes while the *preceding* layer is about to run: it settles the last recall,
selects blocks with the predicted query and starts the host's share. `attend` comes from the layer itself: it
appends the new token, attends to the resident blocks, merges the host's share and, after that, closes a full
tail block and starts a recall. Residency changes only between an `attend` and the next `predict`, so the
host's share and the device's never overlap and never leave a selected block out.

This module knows tensors only; `dtk.scout.transformers_cache` ties it to a model.
"""

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from dtk.scout.config import ScoutConfig
from dtk.scout.host import HostPartial, HostWorker, PendingCopy, PendingPartial
from dtk.scout.layout import BatchLayout
from dtk.scout.policies import QuestSelection, RecallTimer
from dtk.scout.stats import LayerStats
from dtk.scout.tiers import DeviceTier, HostTier
from dtk_kernels.attention import block_digest, merge_partials, sparse_decode_attention

__all__ = ["OffloadedLayer"]


@dataclass
class _Selection:
    """What `predict` decided for the step under way.

    Attributes:
        query: [rows, query heads, head size], predicted, or real for a layer without a predecessor.
        scores: fp32 [rows, blocks].
        chosen: bool [rows, blocks], the selected blocks.
        selecting: bool [rows], rows with more blocks than the budget; the others have everything resident,
            and behave as they would in a batch of their own.
        host_tokens: Mean over the rows of the tokens that the host attends to.
        partial: The host's share, ready to start; None where everything selected is resident.
        job: The host's share under way, or None.
    """

    query: Tensor
    scores: Tensor
    chosen: Tensor
    selecting: Tensor
    host_tokens: Tensor
    partial: HostPartial | None
    job: PendingPartial | None = None


@dataclass(frozen=True)
class _Recall:
    """Blocks on their way to the device (int64 [n] each): the slots are empty until the copy is done."""

    rows: Tensor
    slots: Tensor
    blocks: Tensor
    copy: PendingCopy


class OffloadedLayer:
    """KV cache and decode attention of one layer, split over the device and the host.

    Args:
        config: Settings of the cache.
        host: Runs the host's shares and the recalls.
        scale: The model's factor on attention scores.
        recall_timer: When this layer recalls.
        reserve_tokens: Tokens to make room for beyond the prompt, so that the host tier need not grow.
    """

    def __init__(
        self,
        config: ScoutConfig,
        host: HostWorker,
        scale: float,
        recall_timer: RecallTimer,
        reserve_tokens: int = 0,
    ) -> None:
        self.stats = LayerStats()
        self._config = config
        self._host = host
        self._scale = scale
        self._policy = QuestSelection(config)
        self._recall_timer = recall_timer
        self._reserve_tokens = reserve_tokens
        self._selection: _Selection | None = None
        self._recall: _Recall | None = None
        self._last_chosen: Tensor | None = None

    # ---------------------------------------------------------------- prefill

    def prefill(self, keys: Tensor, values: Tensor, last_query: Tensor, layout: BatchLayout) -> None:
        """Take over a prompt's K/V: all full blocks to the host, the best of them and the tail to the device.

        Args:
            keys: [batch, KV heads, padded tokens, head size], left-padded; likewise `values`.
            values: See `keys`.
            last_query: [batch, query heads, head size], the real query of the last prompt token.
            layout: Which tokens of each sequence are real, and how sequences and heads map to rows.
        """
        # Under autocast RoPE leaves keys in fp32 beside values in half precision.
        values = values.to(keys.dtype)
        size = self._config.block_size
        self.layout = layout
        self._last_chosen = None
        self._num_blocks = [tokens // size for tokens in layout.tokens_by_row]
        widest = max(self._num_blocks)
        reserve = -(-self._reserve_tokens // size) if self._reserve_tokens else widest // 4 + 4
        heads, head_size = layout.heads_per_row(keys.shape[1]), keys.shape[3]
        shape, rows = (heads, size, head_size), layout.num_rows
        slots = min(self._config.budget_blocks, widest + reserve) + 1
        self.device_tier = DeviceTier(rows, slots, shape, keys.dtype, keys.device)
        self.host_tier = HostTier(rows, widest + reserve, shape, keys.dtype)
        digest_shape = (rows, widest + reserve, heads, head_size)
        self.key_min = torch.zeros(digest_shape, dtype=keys.dtype, device=keys.device)
        self.key_max = torch.zeros_like(self.key_min)
        self.device_tier.reserve(widest + reserve)
        row_keys, row_values = layout.split_rows(keys), layout.split_rows(values)
        for row, blocks in enumerate(self._num_blocks):
            self._fill_row(row, blocks, row_keys[row], row_values[row])
        self._make_residents(layout.to_rows(last_query))

    def _fill_row(self, row: int, blocks: int, keys: Tensor, values: Tensor) -> None:
        """Store one row's tokens ([KV heads, tokens, head size]): digests, host blocks, device tail."""
        cut = blocks * self._config.block_size
        self.device_tier.set_tail(row, keys[:, cut:], values[:, cut:])
        if not blocks:
            return
        block_keys, block_values = (
            x[:, :cut].unflatten(1, (blocks, -1)).transpose(0, 1).contiguous() for x in (keys, values)
        )
        ids = torch.arange(blocks, device=keys.device)
        self._write_digests(torch.full_like(ids, row), ids, block_keys)
        host_keys, host_values = self.host_tier.row(row, blocks)
        host_keys.copy_(block_keys)
        host_values.copy_(block_values)

    def _make_residents(self, query: Tensor) -> None:
        if not max(self._num_blocks):
            return
        scores = self._score(query)
        chosen = self._policy.select(scores, self._policy.forced(self._block_counts(), scores.shape[1]))
        for row in range(self.layout.num_rows):
            blocks = chosen[row][chosen[row] >= 0].long()
            keys, values = self.host_tier.row(row, self._num_blocks[row])
            picked = blocks.cpu()
            self.device_tier.place(
                row, blocks, keys[picked].to(query.device), values[picked].to(query.device)
            )

    # ---------------------------------------------------------------- decode

    @property
    def has_open_step(self) -> bool:
        """Whether a host share was started and its step never came: a forward pass broke off."""
        return self._selection is not None

    @property
    def needs_selection(self) -> bool:
        """Whether some block is not resident, so that a decode step has to select."""
        return max(self._num_blocks) > self._config.budget_blocks

    def predict(self, query: Tensor) -> None:
        """Select blocks with the predicted query and start the host's share.

        Args:
            query: [batch, query heads, head size], the query that the layer is expected to have.
        """
        if self._selection is not None:
            raise RuntimeError(
                "a host share was started and never collected; the cache is no longer consistent"
            )
        self.settle()
        if not self.needs_selection:
            return
        self._selection = self._select(self.layout.to_rows(query))
        if self._config.host_query == "predicted":
            self._start_host_share(self._selection)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Append one token to every sequence and attend to the device's and the host's blocks.

        Args:
            query: [batch, query heads, head size].
            key: [batch, KV heads, head size]; likewise `value`.
            value: See `key`.

        Returns:
            fp32 [batch, query heads, head size].
        """
        rows = self.layout.to_rows(query)
        selection = self._selection_for(rows)
        tail_tokens = self._tail_tokens()
        key, value = (x.to(self.device_tier.keys.dtype) for x in (key, value))
        self.device_tier.append(
            self.layout.to_rows(key), self.layout.to_rows(value), torch.tensor(tail_tokens, device=key.device)
        )
        self.layout.advance()
        lengths = self._device_lengths(selection)
        output, lse = sparse_decode_attention(
            rows,
            self.device_tier.keys,
            self.device_tier.values,
            self.device_tier.flat_ids()[:, None],
            lengths[:, None],
            scale=self._scale,
        )
        if selection is not None and selection.job is not None:
            output = self._merge_host_share(selection.job, output, lse)
        self._selection = None
        attended = lengths.sum() / self.layout.num_rows
        self._close_full_tails(tail_tokens, rows)
        due = self._recall_timer.tick()
        recalled = self._start_recall(selection) if due and selection is not None else None
        self._record(selection, rows, attended, recalled)
        return self.layout.from_rows(output)

    def _selection_for(self, query: Tensor) -> _Selection | None:
        """Return this step's selection, made here with the real query if no predecessor could predict."""
        if self._selection is None:
            self.settle()
            if not self.needs_selection:
                return None
            self._selection = self._select(query)
        selection = self._selection
        if selection.job is None and selection.partial is not None:
            selection.partial = replace(selection.partial, query=query)
            self._start_host_share(selection)
        return selection

    def _select(self, query: Tensor) -> _Selection:
        scores = self._score(query)
        ids = self._policy.select(scores, self._policy.forced(self._block_counts(), scores.shape[1])).long()
        present = ids >= 0
        slots = self.device_tier.slot_of_block.gather(1, ids.clamp_min(0))
        missing = present & (slots < 0)
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, ids.clamp_min(0), present)
        # A -1 in `ids` points the scatter at block 0, which may be selected in earnest elsewhere in the row.
        chosen[:, 0] = (ids == 0).any(dim=1)
        host_tokens = missing.sum() * self._config.block_size / self.layout.num_rows
        selecting = self._block_counts() > self._config.budget_blocks
        partial = self._host_partial(query, ids, missing)
        return _Selection(query, scores, chosen, selecting, host_tokens, partial)

    def _host_partial(self, query: Tensor, ids: Tensor, missing: Tensor) -> HostPartial | None:
        if not query.is_cuda and not missing.any():
            return None
        first = torch.arange(self.layout.num_rows, device=ids.device)[:, None] * self.host_tier.capacity
        table = torch.where(missing, ids + first, -1).to(torch.int32)
        lengths = missing.to(torch.int32) * self._config.block_size
        return HostPartial(
            query, self.host_tier.keys, self.host_tier.values, table[:, None], lengths[:, None], self._scale
        )

    def _start_host_share(self, selection: _Selection) -> None:
        if selection.partial is not None:
            selection.job = self._host.submit(selection.partial)

    def _device_lengths(self, selection: _Selection | None) -> Tensor:
        """Return int32 [rows, slots]: how many tokens of each slot the device attends to at this step."""
        tier = self.device_tier
        if selection is None or self._config.device_scope == "resident":
            return tier.lengths
        occupant = tier.block_of_slot.long()
        keep = selection.chosen.gather(1, occupant.clamp_min(0)) & (occupant >= 0)
        return tier.lengths * keep.scatter(1, tier.tail_slot[:, None], True)

    def _merge_host_share(self, job: PendingPartial, output: Tensor, lse: Tensor) -> Tensor:
        self.stats.late_host_jobs += not job.done()
        began = time.perf_counter()
        host_output, host_lse = job.wait()
        self.stats.host_wait_s += time.perf_counter() - began
        outputs = torch.stack([output, host_output.to(output.device)])
        return merge_partials(outputs, torch.stack([lse, host_lse.to(lse.device)]))[0]

    # ---------------------------------------------------------------- after the step

    def _close_full_tails(self, tail_tokens_before: list[int], query: Tensor) -> None:
        """Make each tail block that has just become full a block like any other."""
        closing = [
            row for row, tokens in enumerate(tail_tokens_before) if tokens + 1 == self._config.block_size
        ]
        if not closing:
            return
        device = query.device
        rows = torch.tensor(closing, device=device)
        blocks = torch.tensor([self._num_blocks[row] for row in closing], device=device)
        flat = rows * self.device_tier.slots + self.device_tier.tail_slot[rows]
        keys, values = self.device_tier.keys[flat], self.device_tier.values[flat]
        self._reserve(int(blocks.max()) + 1)
        self._write_digests(rows, blocks, keys)
        self.host_tier.write(rows, blocks, keys, values)
        self.device_tier.adopt_tails(rows, blocks)
        for row in closing:
            self._num_blocks[row] += 1
        self._add_slots()
        scores = self._score(query)
        ranks = self.device_tier.slot_ranks(
            scores, self._policy.forced(self._block_counts(), scores.shape[1])
        )
        self.device_tier.open_tails(rows, ranks[rows])

    def _start_recall(self, selection: _Selection) -> Tensor:
        """Start copying selected blocks that are missing into slots of residents that are not selected.

        Returns:
            Mean over the rows of the blocks that are on their way, 0-dimensional.
        """
        tier = self.device_tier
        width = max(self._num_blocks)
        grown = (0, width - selection.scores.shape[1])
        scores = pad(selection.scores, grown, value=-torch.inf)
        chosen = pad(selection.chosen, grown) | self._policy.forced(self._block_counts(), width)
        wanted = chosen & (tier.slot_of_block[:, :width] < 0) & selection.selecting[:, None]
        ranks = tier.slot_ranks(scores, chosen).scatter(1, tier.tail_slot[:, None], torch.inf)
        count = min(width, tier.slots)
        # The best missing blocks meet the worst slots; where slots are short, the lowest scores stay out.
        best = scores.masked_fill(~wanted, -torch.inf).topk(count, dim=1)
        worst = ranks.topk(count, dim=1, largest=False)
        pair = wanted.gather(1, best.indices) & (worst.values < torch.inf)
        rows, column = pair.nonzero(as_tuple=True)
        recalled = pair.sum() / self.layout.num_rows
        if not len(rows):
            return recalled
        blocks, slots = best.indices[rows, column], worst.indices[rows, column]
        tier.vacate(rows, slots)
        copy = self._host.recall(
            (self.host_tier.keys, self.host_tier.values),
            (rows * self.host_tier.capacity + blocks).to(torch.int32),
            (tier.keys, tier.values),
            (rows * tier.slots + slots).to(torch.int32),
        )
        self._recall = _Recall(rows, slots, blocks, copy)
        return recalled

    def settle(self) -> None:
        """Wait for the recall under way, if any, and publish the blocks that it brought."""
        if self._recall is not None:
            recall, self._recall = self._recall, None
            recall.copy.wait()
            self.device_tier.publish(recall.rows, recall.slots, recall.blocks)

    def _record(
        self, selection: _Selection | None, query: Tensor, device_tokens: Tensor, recalled: Tensor | None
    ) -> None:
        churn = cosine = None
        host_tokens = device_tokens.new_zeros(())
        if selection is not None:
            host_tokens = selection.host_tokens
            churn = self._churn(selection)
            if self._config.track_query_cosine and selection.query is not query:
                cosine = cosine_similarity(selection.query.float(), query.float(), dim=-1).mean()
        self._last_chosen = selection.chosen if selection is not None else None
        self.stats.record(
            host_tokens=host_tokens,
            attended_tokens=host_tokens + device_tokens,
            churn=churn,
            query_cosine=cosine,
            recalled_blocks=recalled,
        )

    def _churn(self, selection: _Selection) -> Tensor | None:
        """Return the share of newly selected blocks, over the rows that have more blocks than the budget."""
        if self._last_chosen is None:
            return None
        chosen = selection.chosen
        before = pad(self._last_chosen, (0, chosen.shape[1] - self._last_chosen.shape[1]))
        rows = selection.selecting[:, None]
        return (chosen & ~before & rows).sum() / (chosen & rows).sum()

    # ---------------------------------------------------------------- whole-cache operations

    def dense_kv(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values on the device, [batch, KV heads, padded tokens, head size]."""
        self.settle()
        size = self._config.block_size
        rows = []
        for row, blocks in enumerate(self._num_blocks):
            tail = self.device_tier.tail(row, self.layout.tokens_by_row[row] - blocks * size)
            full = self.host_tier.row(row, blocks)
            rows.append(
                [
                    torch.cat([f.transpose(0, 1).flatten(1, 2).to(t.device), t], dim=1)
                    for f, t in zip(full, tail, strict=True)
                ]
            )
        return self.layout.join_rows([keys for keys, _ in rows]), self.layout.join_rows([v for _, v in rows])

    def select_sequences(self, sequences: Tensor) -> None:
        """Keep the given sequences of the batch, in the given order and with repeats (int64 [n])."""
        self.settle()
        if torch.equal(sequences, torch.arange(self.layout.batch_size, device="cpu")):
            return
        self.layout, rows = self.layout.select(sequences)
        self._num_blocks = [self._num_blocks[row] for row in rows.tolist()]
        self.device_tier.select_rows(rows.to(self.key_min.device))
        self.host_tier.select_rows(rows)
        self.key_min, self.key_max = (
            x.index_select(0, rows.to(x.device)) for x in (self.key_min, self.key_max)
        )
        self._last_chosen = None

    # ---------------------------------------------------------------- small parts

    def _score(self, query: Tensor) -> Tensor:
        width = max(self._num_blocks)
        return self._policy.score(
            query, self.key_min[:, :width], self.key_max[:, :width], self._block_counts()
        )

    def _block_counts(self) -> Tensor:
        return torch.tensor(self._num_blocks, dtype=torch.int32, device=self.key_min.device)

    def _tail_tokens(self) -> list[int]:
        size = self._config.block_size
        return [
            tokens - blocks * size
            for tokens, blocks in zip(self.layout.tokens_by_row, self._num_blocks, strict=True)
        ]

    def _write_digests(self, rows: Tensor, blocks: Tensor, keys: Tensor) -> None:
        lengths = torch.full((len(keys),), keys.shape[2], dtype=torch.int32, device=keys.device)
        self.key_min[rows, blocks], self.key_max[rows, blocks] = block_digest(keys, lengths)

    def _add_slots(self) -> None:
        """Let the device tier grow with a short context, up to the budget and the tail."""
        tier, budget = self.device_tier, self._config.budget_blocks
        if tier.slots <= min(max(self._num_blocks), budget):
            tier.add_slots(min(budget + 1, tier.slots + tier.slots // 2 + 1) - tier.slots)

    def _reserve(self, blocks: int) -> None:
        """Make room for `blocks` blocks a row in the host tier, the block map and the digests."""
        self.host_tier.reserve(blocks)
        self.device_tier.reserve(blocks)
        missing = blocks - self.key_min.shape[1]
        if missing > 0:
            grown = (0, 0, 0, 0, 0, missing + blocks // 2)
            self.key_min, self.key_max = (pad(x, grown) for x in (self.key_min, self.key_max))
