"""How a left-padded batch maps to rows of contiguous tokens, the unit of block selection."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["BatchLayout"]


@dataclass
class BatchLayout:
    """Lengths of the sequences of a batch, and the mapping from (sequence, head) to rows.

    Attributes:
        padding: Padding tokens left of each sequence, [batch].
        tokens: Real tokens of each sequence so far, [batch].
        rows_per_sequence: 1 where a layer has one selection, the number of KV heads where each has its own.
    """

    padding: list[int]
    tokens: list[int]
    rows_per_sequence: int = 1

    @property
    def batch_size(self) -> int:
        """Sequences in the batch."""
        return len(self.tokens)

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return self.batch_size * self.rows_per_sequence

    @property
    def padded_tokens(self) -> int:
        """Length of the batch with its padding, the same for every sequence."""
        return self.padding[0] + self.tokens[0]

    @property
    def tokens_by_row(self) -> list[int]:
        """Real tokens of each row."""
        return [tokens for tokens in self.tokens for _ in range(self.rows_per_sequence)]

    def heads_per_row(self, heads: int) -> int:
        """Return how many of a sequence's `heads` heads fall to each of its rows."""
        return heads // self.rows_per_sequence

    def continues_with(self, padding: list[int]) -> bool:
        """Return whether these sequences may have `padding` from now on.

        It stays what it is, except for a sequence that has no token yet: in the first chunks of a ragged
        prompt a short sequence is all padding, and that still grows.
        """
        return len(padding) == len(self.padding) and all(
            now == before or not tokens
            for now, before, tokens in zip(padding, self.padding, self.tokens, strict=True)
        )

    def advance(self) -> None:
        """Count one more token in every sequence."""
        self.tokens = [tokens + 1 for tokens in self.tokens]

    def to_rows(self, x: Tensor) -> Tensor:
        """[batch, heads, head size] -> [rows, heads of a row, head size]; query groups stay together."""
        heads = x.shape[1] // self.rows_per_sequence
        return x.reshape(self.num_rows, heads, x.shape[2])

    def from_rows(self, x: Tensor) -> Tensor:
        """Undo `to_rows`."""
        return x.reshape(self.batch_size, -1, x.shape[2])

    def split_rows(self, x: Tensor) -> list[Tensor]:
        """[batch, heads, padded tokens, head size] -> each row's real tokens, [heads, tokens, head size]."""
        return [
            x[sequence, :, padding:].unflatten(0, (self.rows_per_sequence, -1))[part]
            for sequence, padding in enumerate(self.padding)
            for part in range(self.rows_per_sequence)
        ]

    def join_rows(self, rows: list[Tensor]) -> Tensor:
        """Undo `split_rows`; the padding is filled with zeros."""
        padded = [
            torch.nn.functional.pad(row, (0, 0, self.padding[i // self.rows_per_sequence], 0))
            for i, row in enumerate(rows)
        ]
        return torch.stack(padded).reshape(self.batch_size, -1, *padded[0].shape[1:])

    def select(self, sequences: Tensor) -> tuple["BatchLayout", Tensor]:
        """Return the layout of the given sequences and the rows (int64, CPU) that they have here."""
        chosen = sequences.tolist()
        part = torch.arange(self.rows_per_sequence, device="cpu")
        rows = (sequences.cpu()[:, None] * self.rows_per_sequence + part).flatten()
        layout = replace(
            self, padding=[self.padding[i] for i in chosen], tokens=[self.tokens[i] for i in chosen]
        )
        return layout, rows
