"""The shortest iteration over a space of configurations, proven by bounds: best first, as A* does it.

Every configuration waits with a bound on its time. The one with the lowest bound is looked at next: its bound
is refined, and if it stays the lowest, its iteration is simulated. The search ends when the lowest bound that
waits is no less than the worst of the plans that are kept, so nothing that was left out could be among them.
"""

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from dtk.costmodel.profiles import NotProfiledError
from dtk.errors import InputError
from dtk.pipeline.costs import MAX_TIME_NS
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.uncounted import is_size

__all__ = ["NearMiss", "Progress", "SearchResult", "search"]

_CHECK_EVERY: Final = 64
_MISSES_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is.

    Attributes:
        num_candidates: Configurations of the space.
        num_left: That are still to be looked at.
        num_simulated: That were simulated.
        best_s: The shortest iteration so far that fits.
    """

    num_candidates: int
    num_left: int
    num_simulated: int
    best_s: float | None


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A configuration that does not fit.

    Attributes:
        candidate: The configuration.
        bound_ns: It takes at least that long.
        needs_bytes: It needs at least that much on its fullest rank.
    """

    candidate: Candidate
    bound_ns: int
    needs_bytes: int


@dataclass
class SearchResult:
    """What a search found.

    Attributes:
        best: The shortest iterations that fit, one for each family of configurations, shortest first.
        nearest_misses: Of those that do not fit and might be shorter than the best (or of all, where none
            fits), some that exceed the memory by least, the least first.
        num_candidates: Configurations of the space.
        num_simulated: Of these, simulated.
        num_too_large: Of these, found not to fit.
        uncounted: Why a configuration could not be estimated: a time or size is beyond what is counted; the
            first such, None where there was none.
        not_profiled: Why configurations that a profile does not cover were left out; None where none was.
        is_complete: Whether the best, or that nothing fits, is proven: the search has not been ended early,
            and what could not be counted would take longer.
        interrupted: Whether Ctrl-C ended it.
        seconds: How long it took.
    """

    best: list[Evaluated] = field(default_factory=list)
    nearest_misses: list[NearMiss] = field(default_factory=list)
    num_candidates: int = 0
    num_simulated: int = 0
    num_too_large: int = 0
    uncounted: InputError | None = None
    not_profiled: NotProfiledError | None = None
    is_complete: bool = False
    interrupted: bool = False
    seconds: float = 0.0


def search(
    evaluator: Evaluator,
    space: Iterable[Candidate],
    *,
    keep: int = 1,
    deadline: float | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SearchResult:
    """Return the best configurations of a space.

    Args:
        evaluator: Bounds and estimates.
        space: The configurations; each is looked at once.
        keep: How many of different families to keep.
        deadline: When to stop and return the best so far, in seconds of `time.monotonic`.
        progress: Told now and then.
    """
    found = _Search(evaluator, keep, progress)
    start = time.monotonic()
    try:
        found.run(space, deadline)
    except KeyboardInterrupt:
        found.result.interrupted = True
    found.result.seconds = time.monotonic() - start
    found.finish()
    return found.result


class _Search:
    def __init__(self, evaluator: Evaluator, keep: int, progress: Callable[[Progress], None]) -> None:
        self.result = SearchResult()
        self._evaluator = evaluator
        self._keep = keep
        self._progress = progress
        self._of_family: dict[tuple[object, ...], Evaluated] = {}
        self._misses: list[NearMiss] = []
        # Bound, place in the space (so that ties break in one order), whether refined.
        self._waiting: list[tuple[int, int, bool]] = []
        self._space: list[Candidate] = []
        self._has_endless = False

    def run(self, space: Iterable[Candidate], deadline: float | None) -> None:
        if not self._list(space, deadline):
            return
        heapq.heapify(self._waiting)
        steps = 0
        while self._waiting and self._waiting[0][0] < self._threshold_ns():
            if steps % _CHECK_EVERY == 0:
                self._tell()
            if deadline is not None and time.monotonic() > deadline:
                return
            steps += 1
            self._step(*heapq.heappop(self._waiting))
        # A time that could not be counted is longer than all that can be; such a size fits nowhere.
        self.result.is_complete = not self._has_endless or self._threshold_ns() <= MAX_TIME_NS
        self._tell()

    def _list(self, space: Iterable[Candidate], deadline: float | None) -> bool:
        """List the space with the first bounds; return whether there was time for all of it."""
        for candidate in space:
            if deadline is not None and time.monotonic() > deadline:
                return False
            try:
                bound_ns = self._evaluator.compute_bound_ns(candidate)
            except NotProfiledError as error:
                self.result.not_profiled = self.result.not_profiled or error
                continue
            self._waiting.append((bound_ns, len(self._space), False))
            self._space.append(candidate)
        return True

    def finish(self) -> None:
        self.result.num_candidates = len(self._space)
        self.result.best = self._sorted()[: self._keep]
        best = self.result.best
        limit_ns = best[0].estimate.simulation.makespan_ns if best else None
        misses = [each for each in self._misses if limit_ns is None or each.bound_ns < limit_ns]
        order = heapq.nsmallest(_MISSES_KEPT, misses, key=lambda each: (each.needs_bytes, each.bound_ns))
        self.result.nearest_misses = order

    def _step(self, bound_ns: int, place: int, is_refined: bool) -> None:
        candidate, limit = self._space[place], self._evaluator.problem.limit_bytes
        if not is_refined:
            try:
                bound_ns, needs = self._evaluator.bounds(candidate)
            except InputError as error:
                self._leave_out(error)
                return
            if needs > limit:
                self._miss(NearMiss(candidate, bound_ns, needs))
            else:
                heapq.heappush(self._waiting, (bound_ns, place, True))
            return
        # A twin that differs in the optimizer alone may have been simulated since.
        better_ns, _ = self._evaluator.bounds(candidate)
        if better_ns > bound_ns:
            heapq.heappush(self._waiting, (better_ns, place, True))
            return
        try:
            evaluated = self._evaluator.evaluate(candidate)
        except InputError as error:
            # Some schedules exist for some numbers of micro-batches only, which is no lack.
            if error.field == "costs":
                self._leave_out(error)
            return
        self.result.num_simulated += 1
        if not evaluated.fits:
            makespan_ns = evaluated.estimate.simulation.makespan_ns
            self._miss(NearMiss(candidate, makespan_ns, evaluated.estimate.peak_bytes))
            return
        before = self._of_family.get(candidate.family)
        if before is None or _order(evaluated) < _order(before):
            self._of_family[candidate.family] = evaluated

    def _leave_out(self, error: InputError) -> None:
        self.result.uncounted = self.result.uncounted or error
        if is_size(error):
            self.result.num_too_large += 1
        else:
            self._has_endless = True

    def _miss(self, miss: NearMiss) -> None:
        self.result.num_too_large += 1
        self._misses.append(miss)

    def _sorted(self) -> list[Evaluated]:
        return sorted(self._of_family.values(), key=_order)

    def _threshold_ns(self) -> int:
        """Return the time from which on nothing is of interest."""
        best = self._sorted()
        return best[self._keep - 1].estimate.simulation.makespan_ns if len(best) >= self._keep else 2**63

    def _tell(self) -> None:
        best = min((each.iteration_s for each in self._of_family.values()), default=None)
        self._progress(Progress(len(self._space), len(self._waiting), self.result.num_simulated, best))


def _order(evaluated: Evaluated) -> tuple[int, int]:
    """Shortest first; of equally short ones what takes less memory."""
    return evaluated.estimate.simulation.makespan_ns, evaluated.estimate.peak_bytes
