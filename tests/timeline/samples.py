"""Timelines for tests: a small one by hand, random ones, and one as large as a big pipeline's."""

from pathlib import Path

from hypothesis import strategies as st

from dtk.timeline import Counter, Flow, Span, Timeline, Track

MS = 10**6

# ZeroPP with four ranks, two chunks, four micro-batches and equal costs, in time slots.
ZEROPP_SLOTS = (Path(__file__).parent / "golden" / "zeropp_slots.txt").read_text(encoding="utf-8")


def zeropp() -> Timeline:
    """Return the example as a timeline of milliseconds, with counters and a flow."""
    tracks = [Track(f"rank {rank}", "compute") for rank in range(4)]
    spans = tuple(
        Span(tracks[rank], cell, slot * MS, (slot + 1) * MS, cell[0], {"chunk": int(cell[1])})
        for rank, row in enumerate(ZEROPP_SLOTS.splitlines())
        for slot, cell in enumerate(row.split()[1:])
        if cell != "..."
    )
    held = Counter("rank 0", "activation", ((0, 2**20), (9 * MS, 3 * 2**20), (20 * MS, 0)))
    first, then = (next(span for span in spans if span.track == track) for track in tracks[:2])
    flow = Flow(first, then, "activation")
    return Timeline("ZeroPP", "simulated", spans, (held,), (flow,), category_order=("F", "B", "W"))


def overlap_in_part(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Say whether two intervals [start, end) share time though neither lies in the other."""
    shared = max(one[0], other[0]) < min(one[1], other[1])
    inside = (one[0] <= other[0] and other[1] <= one[1]) or (other[0] <= one[0] and one[1] <= other[1])
    return shared and not inside


@st.composite
def timelines(draw: st.DrawFn, *, largest_ns: int = 3000) -> Timeline:
    """Return random valid timelines: nested and zero-length spans, flows, counters."""
    tracks = [Track(f"rank {rank}", thread) for rank in range(2) for thread in ("compute", "send")]
    times = st.integers(0, largest_ns)
    wanted = st.tuples(st.sampled_from(tracks), times, times, st.sampled_from("FBW"))
    kept: list[Span] = []
    for track, one, other, category in draw(st.lists(wanted, max_size=15)):
        span = Span(track, f"{category}{len(kept)}", min(one, other), max(one, other), category, {"at": one})
        here = [known for known in kept if known.track == track]
        if not any(overlap_in_part(_times(span), _times(known)) for known in here):
            kept.append(span)
    places = st.integers(0, max(len(kept) - 1, 0))
    pairs = draw(st.lists(st.tuples(places, places), max_size=5 if kept else 0))
    ordered = [sorted((kept[one], kept[other]), key=lambda span: span.start_ns) for one, other in pairs]
    flows = tuple(Flow(source, target) for source, target in ordered)
    values = st.dictionaries(times, st.integers(0, 2**40), max_size=5)
    points = tuple(sorted(draw(values).items()))
    return Timeline("random", "simulated", tuple(kept), (Counter("rank 0", "held", points),), flows)


def large(num_ranks: int = 64, spans_of_each: int = 6250) -> Timeline:
    """Return a timeline as large as that of a pipeline of 64 ranks with 400,000 spans."""
    tracks = [Track(f"rank {rank}", "compute") for rank in range(num_ranks)]
    spans = tuple(
        Span(tracks[rank], f"F{index}", start, start + 9001, "FBW"[index % 3], {"m": index})
        for rank in range(num_ranks)
        for index in range(spans_of_each)
        for start in [(index + rank) * 10_007]
    )
    points = tuple((index * 10_007, index % 97 * 2**20) for index in range(spans_of_each))
    counters = tuple(Counter(f"rank {rank}", "activation", points) for rank in range(num_ranks))
    pairs = zip(spans[::2], spans[1::2], strict=False)
    flows = tuple(Flow(*pair) for pair in pairs if pair[0].start_ns <= pair[1].start_ns)
    return Timeline("large", "simulated", spans, counters, flows, category_order=("F", "B", "W"))


def _times(span: Span) -> tuple[int, int]:
    return span.start_ns, span.end_ns
