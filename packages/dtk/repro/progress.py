"""Show how a run goes on: a line a claim, and on a terminal a bar for the run and one for the claim."""

from collections.abc import Callable, Sequence

from rich.progress import Progress

from dtk.repro.claim import Claim
from dtk.repro.result import ClaimResult

__all__ = ["RunDisplay"]


class RunDisplay:
    """Hears the runner and the checks, and tells the person; everything goes where `say` and `bars` go."""

    def __init__(self, say: Callable[[str], None], bars: Progress) -> None:
        self._say = say
        self._bars = bars
        self._run = bars.add_task("claims", total=None)
        self._check = bars.add_task("", total=None, visible=False)

    def kept(self, claims: Sequence[Claim]) -> None:
        """Say how many claims are done from before."""
        self._say(f"{len(claims)} claim{'s' if len(claims) > 1 else ''} done before, not run again")

    def started(self, claim: Claim, number: int, total: int) -> None:
        """Announce a claim; one that takes long says so."""
        self._bars.reset(self._check, visible=False, total=None)
        self._bars.update(self._run, completed=number - 1, total=total, description=claim.id)
        if claim.check is not None and claim.minutes >= 0.5:
            self._say(f"({number}/{total}) {claim.id}: {claim.title}, about {claim.minutes:g} min")

    def finished(self, claim: Claim, result: ClaimResult) -> None:
        """Say how the claim came out."""
        self._bars.update(self._check, visible=False)
        self._bars.advance(self._run)
        self._say(f"{claim.id}: {result.status}, {result.seconds:.1f} s")

    def progress(self, message: str, completed: float, total: float | None) -> None:
        """Show the progress of the check at work."""
        self._bars.update(
            self._check, visible=True, description=f"  {message}", completed=completed, total=total
        )
