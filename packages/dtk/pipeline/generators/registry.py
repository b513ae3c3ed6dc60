"""The named schedules that sizes alone determine, as data, and one function that makes any of them.

A scheduler that searches from costs is no generator; whoever offers one beside these adds its name to theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from dtk.errors import InputError
from dtk.pipeline.generators._row import check_sizes
from dtk.pipeline.generators.dualpipe_v import dualpipe_v
from dtk.pipeline.generators.gpipe import gpipe
from dtk.pipeline.generators.interleaved import interleaved
from dtk.pipeline.generators.looped_bfs import looped_bfs
from dtk.pipeline.generators.one_f_one_b import one_f_one_b
from dtk.pipeline.generators.zb_h1 import zb_h1
from dtk.pipeline.generators.zb_h2 import zb_h2
from dtk.pipeline.generators.zb_v import zb_v
from dtk.pipeline.generators.zeropp import WeightOrder, zeropp
from dtk.pipeline.schedule import Schedule

__all__ = ["SCHEDULES", "Generator", "make_schedule"]


@dataclass(frozen=True)
class Generator:
    """A named schedule.

    Attributes:
        make: Takes `num_ranks`, `num_microbatches`, the options, and `num_chunks` unless that is fixed.
        summary: What it does, in a few words.
        source: Where it comes from.
        min_chunks: The fewest chunks a rank that it takes.
        max_chunks: The most; None for no limit.
        options: The parameters that it heeds besides the sizes.
    """

    make: Callable[..., Schedule]
    summary: str
    source: str
    min_chunks: int = 1
    max_chunks: int | None = None
    options: frozenset[str] = frozenset()

    @property
    def fixed_chunks(self) -> bool:
        """Whether only one number of chunks fits."""
        return self.min_chunks == self.max_chunks

    def takes(self, num_chunks: int) -> bool:
        """Return whether the schedule exists for that many chunks a rank."""
        return self.min_chunks <= num_chunks and (self.max_chunks is None or num_chunks <= self.max_chunks)


SCHEDULES: Final[Mapping[str, Generator]] = MappingProxyType(
    {
        "gpipe": Generator(gpipe, "all forwards, then all backwards", "arXiv 1811.06965", max_chunks=1),
        "1f1b": Generator(
            one_f_one_b, "a forward and a backward in turn", "arXiv 2006.09503, 2104.04473", max_chunks=1
        ),
        "interleaved": Generator(
            interleaved,
            "1f1b over several chunks, micro-batches in groups",
            "arXiv 2104.04473",
            min_chunks=2,
            options=frozenset({"group_size"}),
        ),
        "bfs": Generator(
            looped_bfs,
            "all micro-batches through chunk after chunk",
            "arXiv 2211.05953",
            options=frozenset({"reverse_backward"}),
        ),
        "zb-h1": Generator(
            zb_h1, "1f1b whose weight gradients fill the drain, at 1f1b's memory", "arXiv 2401.10241"
        ),
        "zb-h2": Generator(
            zb_h2,
            "no gap from first to last action, at twice 1f1b's memory",
            "arXiv 2401.10241",
            max_chunks=1,
        ),
        "zb-v": Generator(
            zb_v, "two chunks in a V, no gap for equal times", "arXiv 2405.15362", min_chunks=2, max_chunks=2
        ),
        "dualpipe-v": Generator(
            dualpipe_v,
            "two chunks in a V, forwards and backwards paired",
            "arXiv 2412.19437, deepseek-ai/DualPipe",
            min_chunks=2,
            max_chunks=2,
        ),
        "zeropp": Generator(
            zeropp,
            "units of micro-batches, breadth-first over the chunks, with a split backward",
            "arXiv 2402.03791",
            options=frozenset({"unit", "weight_order", "split"}),
        ),
    }
)

_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {"unit": None, "group_size": None, "weight_order": "lifo", "split": True, "reverse_backward": False}
)


def make_schedule(
    name: str,
    *,
    num_ranks: int,
    num_chunks: int,
    num_microbatches: int,
    unit: int | None = None,
    group_size: int | None = None,
    weight_order: WeightOrder = "lifo",
    split: bool = True,
    reverse_backward: bool = False,
) -> Schedule:
    """Return the named schedule.

    Args:
        name: A key of `SCHEDULES`.
        num_ranks: P.
        num_chunks: V, the stages of each rank.
        num_microbatches: M.
        unit: Of `zeropp`, U; None stands for 2P.
        group_size: Of `interleaved`, G; None stands for P.
        weight_order: Of `zeropp`, `lifo` or `fifo`.
        split: Of `zeropp`, whether weight gradients are kept back to fill idle time.
        reverse_backward: Of `bfs`, whether backwards run in torch's descending order of micro-batches.

    Raises:
        InputError: If there is no such schedule, a size or option does not fit it, or an option is given that
            it does not have.
    """
    generator = SCHEDULES.get(name)
    if generator is None:
        raise InputError(
            "no such schedule", field="schedule", value=name, hint=f"one of {', '.join(SCHEDULES)}"
        )
    given = {
        "unit": unit,
        "group_size": group_size,
        "weight_order": weight_order,
        "split": split,
        "reverse_backward": reverse_backward,
    }
    check_sizes(num_ranks, num_chunks, num_microbatches)
    _check_chunks(name, generator, num_chunks)
    _check_options(name, generator, given)
    arguments: dict[str, Any] = {option: given[option] for option in sorted(generator.options)}
    if not generator.fixed_chunks:
        arguments["num_chunks"] = num_chunks
    return generator.make(num_ranks=num_ranks, num_microbatches=num_microbatches, **arguments)


def _check_chunks(name: str, generator: Generator, num_chunks: int) -> None:
    if generator.takes(num_chunks):
        return
    wanted = (
        f"exactly {generator.min_chunks}" if generator.fixed_chunks else f"{generator.min_chunks} or more"
    )
    fitting = [other for other, each in SCHEDULES.items() if each.takes(num_chunks)]
    raise InputError(
        f"{name} has {wanted} chunk{'' if wanted == 'exactly 1' else 's'} a rank",
        field="num_chunks",
        value=num_chunks,
        hint=f"{num_chunks} is right for {', '.join(fitting)}",
    )


def _check_options(name: str, generator: Generator, given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if option not in generator.options and value != _DEFAULTS[option]:
            owner = next(other for other, each in SCHEDULES.items() if option in each.options)
            raise InputError(
                f"{name} has no such option", field=option, value=value, hint=f"it belongs to {owner}"
            )
