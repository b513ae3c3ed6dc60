"""What a decode run measured: host share, churn, query cosine, recalls and waits, by layer and step."""

import torch
from torch import Tensor

__all__ = ["LayerStats"]

_COLUMNS = ("host_tokens", "attended_tokens", "churn", "query_cosine", "recalled_blocks")


class LayerStats:
    """One offloaded layer's measurements: a row a decode step, kept on the layer's device.

    Reading a column makes a GPU wait; recording a step does not.

    Attributes:
        late_host_jobs: Host shares that were not finished when the layer asked for them. On a GPU the thread
            that asks runs ahead of the device, so this counts more than the device really waited for.
        host_wait_s: Seconds for which the layer waited for host shares, in all.
    """

    def __init__(self) -> None:
        self.late_host_jobs = 0
        self.host_wait_s = 0.0
        self._steps = 0
        self._rows = torch.empty(0, len(_COLUMNS), device="cpu")

    def record(
        self,
        *,
        host_tokens: Tensor,
        attended_tokens: Tensor,
        churn: Tensor | None,
        query_cosine: Tensor | None,
        recalled_blocks: Tensor | None,
    ) -> None:
        """Add one decode step.

        Args:
            host_tokens: Mean over the rows of the tokens that the host attended to; 0-dimensional, like all.
            attended_tokens: Mean over the rows of all tokens attended to, the host's and the device's.
            churn: Share of the selected blocks that were not selected a step earlier, None if unknown.
            query_cosine: Mean cosine of predicted and real query over rows and heads, None if not predicted.
            recalled_blocks: Mean over the rows of the blocks that this step began to recall, None for none.
        """
        unknown = attended_tokens.new_full((), torch.nan, dtype=torch.float32)
        row = torch.stack(
            [
                host_tokens.float(),
                attended_tokens.float(),
                unknown if churn is None else churn.float(),
                unknown if query_cosine is None else query_cosine.float(),
                host_tokens.new_zeros((), dtype=torch.float32)
                if recalled_blocks is None
                else recalled_blocks.float(),
            ]
        )
        if self._steps == len(self._rows):
            grown = row.new_full((max(2 * self._steps, 64), len(_COLUMNS)), torch.nan)
            grown[: self._steps] = self._rows.to(row.device)
            self._rows = grown
        self._rows[self._steps] = row
        self._steps += 1

    @property
    def host_tokens(self) -> Tensor:
        """fp32 [steps] on the CPU; 0 where everything selected was resident. See `record`."""
        return self._column("host_tokens")

    @property
    def attended_tokens(self) -> Tensor:
        """fp32 [steps] on the CPU; see `record`."""
        return self._column("attended_tokens")

    @property
    def churn(self) -> Tensor:
        """fp32 [steps] on the CPU, NaN where unknown; see `record`."""
        return self._column("churn")

    @property
    def query_cosine(self) -> Tensor:
        """fp32 [steps] on the CPU, NaN where the query was not predicted; see `record`."""
        return self._column("query_cosine")

    @property
    def recalled_blocks(self) -> Tensor:
        """fp32 [steps] on the CPU; see `record`."""
        return self._column("recalled_blocks")

    def _column(self, name: str) -> Tensor:
        return self._rows[: self._steps, _COLUMNS.index(name)].cpu()
