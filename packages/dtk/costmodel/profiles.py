"""Measured times of a model's parts, which take the roofline's place where there are some.

A profile holds, for one model, chip, precision and tensor-parallel degree, what a layer, the embedding and
the head took by micro-batch. Between two micro-batches times are on the line through both; outside it
refuses. Profiles are of passes without recomputation and hold the collectives of tensor parallelism. Where
only whole backward passes were measured, input and weight gradients share them as in the roofline.

It leaves out how a profile is taken, and times that depend on what runs beside them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from dtk.costmodel.layer import PartTime
from dtk.costmodel.measurements.records import LayerPart, LayerProfile
from dtk.errors import InputError
from dtk.hardware.model import Precision
from dtk.workload.activations import ActivationSettings
from dtk.workload.transformer import TransformerShape

__all__ = [
    "Conditions",
    "MeasuredPart",
    "ModelProfile",
    "NotProfiledError",
    "find_profile",
    "measured_part",
    "published_profiles",
]

# What tells two models apart, but not their layers.
_NOT_OF_A_LAYER: Final[Mapping[str, object]] = MappingProxyType(
    {"name": "profiled", "source": "", "num_layers": 1, "max_positions": None}
)


class NotProfiledError(InputError):
    """Nothing was measured under the conditions or at the micro-batch of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a profile holds for.

    Attributes:
        shape: The model; profiles serve any number of its layers.
        chip: Name of the chip in the hardware catalogue.
        precision: What the matrix products computed in.
        tensor_parallel: Ranks that share a layer, t.
        sequence_tokens: Tokens of a sequence, s.
        sequence_parallel: Whether norms were cut along the sequence; None where that is not known.
        flash_attention: Whether attention was fused; None where that is not known.
    """

    shape: TransformerShape
    chip: str
    precision: Precision
    tensor_parallel: int
    sequence_tokens: int
    sequence_parallel: bool | None = None
    flash_attention: bool | None = None

    @classmethod
    def of(
        cls, shape: TransformerShape, settings: ActivationSettings, chip: str, precision: Precision
    ) -> "Conditions":
        """Return the conditions of a run's micro-batches."""
        return cls(
            shape=shape,
            chip=chip,
            precision=precision,
            tensor_parallel=settings.tensor_parallel,
            sequence_tokens=settings.sequence_tokens,
            sequence_parallel=settings.sequence_parallel,
            flash_attention=settings.flash_attention,
        )

    def differences(self, other: "Conditions") -> tuple[str, ...]:
        """Return the names of what differs and is known of both."""
        names = []
        for name in self.__slots__:
            mine, its = getattr(self, name), getattr(other, name)
            if name == "shape":
                mine, its = _layers_of(mine), _layers_of(its)
            if mine is not None and its is not None and mine != its:
                names.append(name)
        return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """Measured seconds of a part of the model for one micro-batch, without recomputation.

    Attributes:
        part: The embedding, a layer (all are alike) or the head.
        micro_batch: Sequences, b.
        forward_s: Forward.
        backward_s: Backward, input and weight gradients.
        input_grad_s: Of it, input gradients, where they were measured by themselves.
        update_s: The optimizer's step of this part's weights on one rank; None where it was not measured.
    """

    part: LayerPart
    micro_batch: int
    forward_s: float
    backward_s: float
    input_grad_s: float | None = None
    update_s: float | None = None


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Measured times of a model's parts under one set of conditions.

    Attributes:
        conditions: What they hold for.
        source: Who measured, when and how.
        basis: `measured` here, or `published` by others.
        rows: The times, each part and micro-batch once.
    """

    conditions: Conditions
    source: str
    basis: Literal["measured", "published"]
    rows: tuple[MeasuredPart, ...]

    def __post_init__(self) -> None:
        """Check that there are layers and that nothing stands twice.

        Raises:
            InputError: For the first row at fault.
        """
        seen = set()
        for row in self.rows:
            if (key := (row.part, row.micro_batch)) in seen:
                raise InputError(
                    "stands twice under the same conditions",
                    field="profiles",
                    value=f"{row.part}, micro-batch {row.micro_batch}",
                )
            seen.add(key)
        if "layer" not in self.parts:
            hint = "embedding and head can be left to the roofline"
            raise InputError("has no layer", field="profiles", value=self.source, hint=hint)

    @property
    def parts(self) -> frozenset[LayerPart]:
        """The parts that were measured."""
        return frozenset(row.part for row in self.rows)

    def micro_batches(self, part: LayerPart) -> tuple[int, ...]:
        """Return the measured micro-batches of a part, the smallest first."""
        return tuple(sorted(row.micro_batch for row in self.rows if row.part == part))

    def at(self, part: LayerPart, micro_batch: int) -> MeasuredPart:
        """Return a part's times, on the line between the next smaller and the next larger micro-batch.

        Raises:
            NotProfiledError: If the micro-batch lies outside what was measured.
        """
        rows = sorted((row for row in self.rows if row.part == part), key=lambda row: row.micro_batch)
        sizes = [row.micro_batch for row in rows]
        if not sizes or not sizes[0] <= micro_batch <= sizes[-1]:
            known = f"{sizes[0]} to {sizes[-1]}" if sizes else "none"
            message = f"is outside the profile of the {part}, which has {known}"
            raise NotProfiledError(message, field="micro_batch", value=micro_batch, hint="profile it")
        index = bisect_left(sizes, micro_batch)
        if sizes[index] == micro_batch:
            return rows[index]
        return _between(rows[index - 1], rows[index], micro_batch)


def find_profile(
    profiles: Iterable[ModelProfile], wanted: Conditions, micro_batch: int | None = None
) -> ModelProfile:
    """Return the profile that holds for a run.

    Args:
        profiles: Where to look.
        wanted: The run's conditions.
        micro_batch: If given, one that holds it is preferred.

    Raises:
        NotProfiledError: If there is none, with what the nearest differs in.
    """
    candidates = [(each.conditions.differences(wanted), each) for each in profiles]
    found = [each for differences, each in candidates if not differences]
    if not found:
        raise _nothing_near([(differences, each.conditions) for differences, each in candidates], wanted)

    def holds(profile: ModelProfile) -> bool:
        sizes = profile.micro_batches("layer")
        return micro_batch is None or sizes[0] <= micro_batch <= sizes[-1]

    return next((each for each in found if holds(each)), found[0])


def measured_part(profile: ModelProfile, part: LayerPart, micro_batch: int, roofline: PartTime) -> PartTime:
    """Return the time of a part as measured, in the form that the roofline gives.

    A profile tells only passes. What it does not tell comes from the roofline as a share: of the backward
    pass the input gradients, where they were not measured by themselves, and of the forward pass what
    recomputation runs again.

    Args:
        profile: The measurements.
        part: Which part.
        micro_batch: Sequences, b.
        roofline: What the roofline says of the part in the same run.

    Raises:
        NotProfiledError: If the micro-batch lies outside what was measured.
    """
    row = profile.at(part, micro_batch)
    again_s = row.forward_s * _share(roofline.recomputed_s, roofline.forward_s)
    if row.input_grad_s is None:
        own_s = roofline.input_grad_s - roofline.recomputed_s
        input_grad_s = row.backward_s * _share(own_s, own_s + roofline.weight_grad_s)
    else:
        input_grad_s = row.input_grad_s
    return PartTime(
        row.forward_s,
        input_grad_s + again_s,
        row.backward_s - input_grad_s,
        recomputed_s=again_s,
    )


def published_profiles(records: Iterable[LayerProfile]) -> tuple[ModelProfile, ...]:
    """Return published times of layers as profiles, one for each set of conditions."""
    grouped: dict[Conditions, list[LayerProfile]] = {}
    for record in records:
        conditions = Conditions(
            shape=record.shape,
            chip=record.chip,
            precision=record.precision,
            tensor_parallel=record.tensor_parallel,
            sequence_tokens=record.sequence_tokens,
        )
        grouped.setdefault(conditions, []).append(record)
    return tuple(
        ModelProfile(conditions, group[0].source.title, "published", tuple(_row(each) for each in group))
        for conditions, group in grouped.items()
    )


def _row(record: LayerProfile) -> MeasuredPart:
    return MeasuredPart(
        part=record.part,
        micro_batch=record.micro_batch,
        forward_s=record.forward_s,
        backward_s=record.backward_s,
        update_s=record.update_s,
    )


def _between(lower: MeasuredPart, upper: MeasuredPart, micro_batch: int) -> MeasuredPart:
    weight = (micro_batch - lower.micro_batch) / (upper.micro_batch - lower.micro_batch)

    def line(low: float, high: float) -> float:
        return low + weight * (high - low)

    def line_if_known(low: float | None, high: float | None) -> float | None:
        return None if low is None or high is None else line(low, high)

    return MeasuredPart(
        part=lower.part,
        micro_batch=micro_batch,
        forward_s=line(lower.forward_s, upper.forward_s),
        backward_s=line(lower.backward_s, upper.backward_s),
        input_grad_s=line_if_known(lower.input_grad_s, upper.input_grad_s),
        update_s=line_if_known(lower.update_s, upper.update_s),
    )


def _layers_of(shape: TransformerShape) -> TransformerShape:
    return shape.model_copy(update=dict(_NOT_OF_A_LAYER))


def _share(part_s: float, whole_s: float) -> float:
    return part_s / whole_s if whole_s > 0 else 0.0


def _nothing_near(
    candidates: list[tuple[tuple[str, ...], Conditions]], wanted: Conditions
) -> NotProfiledError:
    if not candidates:
        return NotProfiledError("holds nothing", field="profiles")
    differences, nearest = min(candidates, key=lambda each: len(each[0]))

    def text(conditions: Conditions) -> str:
        values = {name: getattr(conditions, name) for name in differences}
        if "shape" in values:
            values["shape"] = conditions.shape.name
        return ", ".join(f"{name} {value}" for name, value in values.items())

    return NotProfiledError(
        "nothing was profiled under these conditions",
        field="profiles",
        value=text(wanted),
        hint=f"the nearest profile has {text(nearest)}",
    )
