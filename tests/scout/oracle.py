"""A slow, literal reading of ScoutAttention's Algorithm 1, in fp64 and Python sets, to compare with.

It knows neither tiers nor slots: a sequence is a list of keys and values, residency a set of block numbers.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class OracleStep:
    """One step's outcome for one row."""

    output: Array
    on_host: set[int]
    on_device: set[int]


@dataclass
class OracleRow:
    """One row: `keys` and `values` are [tokens, KV heads, head size]."""

    keys: Array
    values: Array
    block_size: int
    budget: int
    sink: int
    recent: int
    interval: int | None
    scope: str
    phase: int = 0
    reduce_max: bool = False
    resident: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.since = self.phase % self.interval if self.interval else 0

    @property
    def num_blocks(self) -> int:
        return len(self.keys) // self.block_size

    def forced(self) -> set[int]:
        every = range(self.num_blocks)
        return {b for b in every if b < self.sink or b >= self.num_blocks - self.recent}

    def scores(self, query: Array) -> dict[int, float]:
        group = len(query) // self.keys.shape[1]
        result = {}
        for block in range(self.num_blocks):
            part = self.keys[block * self.block_size : (block + 1) * self.block_size]
            low, high = part.min(axis=0), part.max(axis=0)
            by_head = [
                float(np.maximum(q * low[h // group], q * high[h // group]).sum())
                for h, q in enumerate(query)
            ]
            result[block] = max(by_head) if self.reduce_max else sum(by_head)
        return result

    def select(self, query: Array) -> set[int]:
        scores, forced = self.scores(query), self.forced()
        others = sorted((b for b in scores if b not in forced), key=lambda b: -scores[b])
        return forced | set(others[: self.budget - len(forced)])

    def prefill(self, last_query: Array) -> None:
        self.resident = self.select(last_query) if self.num_blocks else set()

    def step(
        self, query: Array, predicted: Array, host_query: Array, key: Array, value: Array, scale: float
    ) -> OracleStep:
        selecting = self.num_blocks > self.budget
        predicted_scores = self.scores(predicted)
        chosen = self.select(predicted) if selecting else set(range(self.num_blocks))
        missing = chosen - self.resident if selecting else set()
        on_device = self.resident & chosen if selecting and self.scope == "selected" else set(self.resident)
        tail_start = self.num_blocks * self.block_size
        self.keys = np.concatenate([self.keys, key[None]])
        self.values = np.concatenate([self.values, value[None]])
        size = self.block_size
        device = [t for b in sorted(on_device) for t in range(b * size, (b + 1) * size)]
        device += range(tail_start, len(self.keys))
        host = [t for b in sorted(missing) for t in range(b * size, (b + 1) * size)]
        output = self._attend(query, device, host_query, host, scale)
        self._close(query)
        self._recall(chosen, predicted_scores, selecting)
        return OracleStep(output, missing, on_device)

    def _attend(
        self, query: Array, device: list[int], host_query: Array, host: list[int], scale: float
    ) -> Array:
        group = len(query) // self.keys.shape[1]
        output = np.zeros_like(query)
        for h in range(len(query)):
            keys, values = self.keys[:, h // group], self.values[:, h // group]
            logits = np.concatenate([keys[device] @ query[h], keys[host] @ host_query[h]]) * scale
            weights = np.exp(logits - logits.max())
            output[h] = weights @ values[device + host] / weights.sum()
        return output

    def _close(self, query: Array) -> None:
        if len(self.keys) % self.block_size:
            return
        self.resident.add(self.num_blocks - 1)
        if len(self.resident) > self.budget:
            scores, forced = self.scores(query), self.forced()
            self.resident.remove(min(self.resident - forced, key=lambda b: scores[b]))

    def _recall(self, chosen: set[int], scores: dict[int, float], selecting: bool) -> None:
        if self.interval is None:
            return
        self.since += 1
        if self.since < self.interval:
            return
        self.since = 0
        if not selecting:
            return
        target = chosen | self.forced()
        incoming = sorted(target - self.resident, key=lambda b: -scores.get(b, -math.inf))
        victims = sorted(self.resident - target, key=lambda b: scores.get(b, -math.inf))
        free = self.budget - len(self.resident)
        count = min(len(incoming), free + len(victims))
        self.resident = self.resident - set(victims[: max(count - free, 0)]) | set(incoming[:count])
