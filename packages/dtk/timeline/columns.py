"""Time cut into equal columns: how much of each each category takes, in whole numbers without rounding."""

from collections.abc import Iterable, Mapping, Sequence

from dtk.timeline.model import Span
from dtk.timeline.nesting import innermost

__all__ = ["innermost_pieces", "time_by_column"]


def time_by_column(
    pieces: Iterable[tuple[int, int, str]], end_ns: int, num_columns: int
) -> list[Mapping[str, int]]:
    """Return for each column the time of each category, in units of which `end_ns` fill the column.

    Args:
        pieces: Start, end and category; disjoint, within 0 to `end_ns`.
        end_ns: The time that all columns together stand for; at least 1.
        num_columns: At least 1.
    """
    totals: list[dict[str, int]] = [{} for _ in range(num_columns)]
    for start, end, category in pieces:
        # In these units the borders of columns are whole: column i starts at i * end_ns.
        low, high = start * num_columns, end * num_columns
        column = low // end_ns
        while low < high:
            stop = min(high, (column + 1) * end_ns)
            total = totals[column]
            total[category] = total.get(category, 0) + stop - low
            low, column = stop, column + 1
    return list(totals)


def innermost_pieces(spans: Sequence[Span]) -> Iterable[tuple[int, int, str]]:
    """Yield start, end and category of the innermost span of a track at each time."""
    return ((piece.start_ns, piece.end_ns, spans[piece.place].category) for piece in innermost(spans))
