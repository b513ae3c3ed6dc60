"""Tables of the page of the cost model's accuracy, as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from dtk.pipeline.iteration.accuracy.composed import affine_groups
from dtk.pipeline.iteration.accuracy.judging import GroupError, SetAccuracy, UsedConstant
from dtk.pipeline.iteration.accuracy.memory import MemoryAccuracy
from dtk.pipeline.iteration.accuracy.misses import find_miss
from dtk.pipeline.iteration.accuracy.ranking import CALCULON, Ranking
from dtk.pipeline.iteration.accuracy.sizes import rank_sizes
from dtk.pipeline.iteration.published import Comparison

__all__ = [
    "all_sets",
    "bars",
    "composed",
    "constants",
    "depth",
    "far_off",
    "groups",
    "memory_tables",
    "notes",
    "rankings",
    "tensor_ranks",
]

_ERRORS = ("rows", "mean", "median, signed", "worst")
_ORIGINS = ("fitted", "published", "estimates", "of these borrowed")
_LISTED = 8
"""Rows with one reason, beyond which they are grouped by size."""


def tensor_ranks(row: Comparison) -> int:
    """Return the ranks that share each layer."""
    return row.measured.layout.tensor_parallel


def depth(row: Comparison) -> int:
    """Return the ranks of the pipeline."""
    return row.measured.layout.pipeline_parallel


def bars(accuracies: Iterable[SetAccuracy], memory: Iterable[MemoryAccuracy]) -> str:
    """Return the bars and whether they are met."""
    rows = [("runs", "rows", "figure", "at most", "is", "met", *_ORIGINS)]
    rows += [
        (
            each.judged.title,
            str(len(each.comparisons)),
            f"{verdict.bar.statistic} error",
            _percent(verdict.bar.at_most),
            _percent(verdict.value, 2),
            _met(verdict.passed),
            *_counts(each),
        )
        for each in accuracies
        for verdict in each.verdicts
    ]
    for table in memory:
        if table.at_most is not None:
            figures = _percent(table.at_most), _percent(table.mean, 2), _met(table.mean <= table.at_most)
            rows.append((table.title, str(len(table.rows)), "mean error", *figures, "0", "0", "0", "0"))
    return _table(rows)


def all_sets(accuracies: Iterable[SetAccuracy]) -> str:
    """Return the errors of every set."""
    rows = [("set", "runs", *_ERRORS, "more than 10 % off", *_ORIGINS)]
    rows += [
        (
            f"`{each.judged.name}`",
            each.judged.title,
            *_error_cells(each.error),
            str(len(each.far_off)),
            *_counts(each),
        )
        for each in accuracies
    ]
    return _table(rows)


def notes(accuracies: Iterable[SetAccuracy]) -> str:
    """Return what a reader must know of the sets."""
    return "\n".join(f"- `{each.judged.name}`: {each.judged.note}" for each in accuracies if each.judged.note)


def composed(accuracies: Mapping[str, SetAccuracy]) -> str:
    """Return what is to be said of the table of one node."""
    names = ("vtrain-one-node", "vtrain-one-node-fitted")
    found = affine_groups(row.measured for name in names for row in accuracies[name].comparisons)
    residual = max(group.residual for group in found)
    return (
        "**vTrain's rows of one node are no independent timings of iterations.** In each of the "
        f"{len(found)} groups of three or more rows that differ in the number of micro-batches alone, "
        "times are affine in that number to the last digit (largest relative residual "
        f"{residual:.0e}), and replicas change a layer's time by nothing at all. They were composed "
        "from fewer measurements, so that the half that was not fitted says little that the fitted "
        "half does not. Of several nodes the table has no such groups; those of the zero-bubble "
        "paper are off their lines, as timings are."
    )


def groups(accuracies: Mapping[str, SetAccuracy]) -> str:
    """Return errors by tensor-parallel and pipeline ranks."""
    parts = []
    for name, label, key in (
        ("vtrain", "tensor-parallel ranks", tensor_ranks),
        ("vtrain", "pipeline ranks", depth),
        ("vtrain-175b", "pipeline ranks", depth),
        ("korthikanti", "pipeline ranks", depth),
        ("weak-scaling", "pipeline ranks", depth),
    ):
        rows = [(label, *_ERRORS)]
        rows += [
            (str(value), *_error_cells(group))
            for value, group in sorted(accuracies[name].grouped(key).items())
        ]
        parts.append(f"`{name}`, by {label}:\n\n{_table(rows)}")
    return "\n\n".join(parts)


def rankings(accuracies: Mapping[str, SetAccuracy]) -> str:
    """Return how well layouts are ranked, beside Calculon."""
    everything, judged = rank_sizes(accuracies), rank_sizes(accuracies, judged_only=True)
    own, peer_header = ("layouts", "tau", "regret"), ("Calculon: tau", "regret")
    rows: list[tuple[str, ...]] = [("vTrain's runs of", *own, *peer_header, "not fitted", *own[1:])]
    for size, ranking in everything.items():
        peer = f"{CALCULON.tau[size]:.2f}", _percent(CALCULON.regret[size])
        rows.append((size, *_ranking_cells(ranking), *peer, *_ranking_cells(judged[size])))
    both = GroupError.of((*accuracies["vtrain"].comparisons, *accuracies["vtrain-fitted"].comparisons))
    worst = accuracies["vtrain-18.4b"].error.worst
    return (
        "Of all measured layouts of one model and batch: how alike the orders are (Kendall's tau, 1 "
        "for the same), and what the layout predicted fastest takes longer than the fastest (its "
        "regret). Half of the rows were fitted; the last columns leave these out. Beside it stands "
        f"{CALCULON.source}. Its mean error with tensor parallelism inside nodes is "
        f"{_percent(CALCULON.mean_error)}; that of dtk is {_percent(both.mean)} on the same rows, and "
        f"{_percent(accuracies['vtrain'].error.mean)} on those that were not "
        f"fitted.\n\n{_table(rows)}\n\nAmong the few layouts of 18.4B that were not fitted the order "
        "is no better than chance: most lie within a tenth of each other, and the model is up to "
        f"{_percent(worst)} off."
    )


def memory_tables(memory: Iterable[MemoryAccuracy]) -> str:
    """Return the errors of every table of memory."""
    rows = [("table", "figures", "rows", "mean error", "worst")]
    rows += [
        (each.title, each.basis, str(len(each.rows)), _percent(each.mean), _percent(each.worst))
        for each in memory
    ]
    return _table(rows)


def far_off(accuracies: Iterable[SetAccuracy]) -> str:
    """Return all rows that are more than a tenth off, by set and reason; a row of two sets stands once."""
    parts, told = [], set()
    for each in accuracies:
        by_reason: dict[tuple[str, str], list[Comparison]] = {}
        for row in each.far_off:
            miss = find_miss(each.judged.name, row.measured.name)
            known = (miss.kind, miss.reason) if miss else ("unexplained", "")
            key = (row.measured.source.name, row.measured.name, bool(each.judged.profiles))
            if key not in told:
                told.add(key)
                by_reason.setdefault(known, []).append(row)
        parts += [
            f"`{each.judged.name}`, *{kind}*. {text}\n\n{_rows(rows)}"
            for (kind, text), rows in by_reason.items()
        ]
    return "\n\n".join(parts)


def _rows(rows: Sequence[Comparison]) -> str:
    if len(rows) <= _LISTED:
        return "\n".join(f"- `{row.measured.name}`: {100 * row.error:+.1f} %" for row in rows)

    def size(row: Comparison) -> tuple[int, int, int]:
        return row.measured.shape.hidden_size, tensor_ranks(row), row.measured.job.micro_batch

    lines = [("hidden size", "tensor-parallel ranks", "micro-batch", "rows", "errors")]
    for key, members in groupby(sorted(rows, key=size), key=size):
        errors = [100 * row.error for row in members]
        ends = f"{min(errors):+.0f} to {max(errors):+.0f} %" if len(errors) > 1 else f"{errors[0]:+.0f} %"
        hidden, ranks, micro_batch = map(str, key)
        lines.append((hidden, ranks, micro_batch, str(len(errors)), ends))
    return _table(lines)


def constants(accuracies: Iterable[SetAccuracy]) -> str:
    """Return every constant that predictions rest on."""
    used: set[UsedConstant] = set()
    for each in accuracies:
        used.update(each.constants)
    rows = [("of", "constant", "value", "origin", "source")]
    for constant in sorted(used):
        value = str(constant.value).lower() if isinstance(constant.value, bool) else f"{constant.value:g}"
        origin = constant.origin
        if constant.borrowed_from:
            origin += f", borrowed from {constant.borrowed_from}"
        rows.append((constant.owner, f"`{constant.name}`", value, origin, constant.source))
    return _table(rows)


def _met(passed: bool) -> str:
    return "yes" if passed else "**no**"


def _counts(accuracy: SetAccuracy) -> tuple[str, ...]:
    counts = [accuracy.num_constants(origin) for origin in ("fitted", "published", "estimate")]
    return tuple(map(str, (*counts, accuracy.num_borrowed)))


def _error_cells(error: GroupError) -> tuple[str, ...]:
    median = f"{100 * error.median:+.1f} %"
    return str(error.num_rows), _percent(error.mean), median, _percent(error.worst)


def _ranking_cells(ranking: Ranking) -> tuple[str, ...]:
    return str(ranking.num_rows), f"{ranking.tau:.2f}", _percent(ranking.regret)


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
