"""What a schedule's actions cost: time by stage and kind, bytes by stage. One value a stage, or one for all.

Times are integer nanoseconds for one chunk and one micro-batch. The figures come from outside: the command
line, measured layer profiles, or the cost model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any

from dtk.errors import InputError

__all__ = ["StageCosts"]

# A quarter of an hour, a terabyte. Whether sums over a schedule stay within 64 bits, the simulator checks.
MAX_TIME_NS = 2**40 - 1
MAX_BYTES = 2**40 - 1


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """Costs by stage: each field holds one value for each stage, in order. `StageCosts.of` makes it easily.

    Attributes:
        forward_ns: T_F.
        input_grad_ns: T_B of the zero-bubble papers, torch's I.
        weight_grad_ns: T_W. A full backward takes input_grad_ns + weight_grad_ns.
        activation_transfer_ns: Sending the stage's output to the next stage, if that is on another rank.
        gradient_transfer_ns: Sending the gradient of the stage's input to the previous stage, likewise.
        unshard_ns: Gathering the stage's parameters.
        reduce_grad_ns: Reduce-scattering the stage's gradients.
        optimizer_ns: The optimizer step of the stage's share.
        activation_bytes: Held from the start of the forward to the end of the input gradient (or of the full
            backward), for each micro-batch.
        weight_grad_bytes: Held from there to the end of the weight gradient.
        parameter_bytes: The gathered parameters, from UNSHARD to RESHARD; always, where nothing is sharded.
        gradient_bytes: The unsharded gradients, from the first weight gradient until REDUCE_GRAD has ended;
            to the end, where there is none.
        activation_message_bytes: What one activation (or gradient) message between stages holds.
    """

    forward_ns: tuple[int, ...]
    input_grad_ns: tuple[int, ...]
    weight_grad_ns: tuple[int, ...]
    activation_transfer_ns: tuple[int, ...]
    gradient_transfer_ns: tuple[int, ...]
    unshard_ns: tuple[int, ...]
    reduce_grad_ns: tuple[int, ...]
    optimizer_ns: tuple[int, ...]
    activation_bytes: tuple[int, ...]
    weight_grad_bytes: tuple[int, ...]
    parameter_bytes: tuple[int, ...]
    gradient_bytes: tuple[int, ...]
    activation_message_bytes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InputError: If a field has another number of values than `forward_ns`, or a value is negative, too
                large or no integer.
        """
        for each in fields(self):
            _check(each.name, getattr(self, each.name), self.num_stages)

    @classmethod
    def of(
        cls,
        num_stages: int,
        *,
        forward_ns: int | Sequence[int],
        input_grad_ns: int | Sequence[int],
        weight_grad_ns: int | Sequence[int],
        **others: int | Sequence[int],
    ) -> "StageCosts":
        """Return costs from one value for all stages or one a stage; what is not given is 0.

        Raises:
            InputError: If `num_stages` is negative, a list has another length, or a value is negative, too
                large or no integer.
        """
        if num_stages < 0:
            raise InputError("must be 0 or more", field="num_stages", value=num_stages)
        given = {"forward_ns": forward_ns, "input_grad_ns": input_grad_ns, "weight_grad_ns": weight_grad_ns}
        known = [each.name for each in fields(cls)]
        if unknown := set(others) - set(known):
            raise InputError("not a cost of a stage", field=min(unknown), hint=f"one of {', '.join(known)}")
        values = {name: _spread(name, (given | others).get(name, 0), num_stages) for name in known}
        return cls(**values)

    @property
    def num_stages(self) -> int:
        """How many stages these are the costs of."""
        return len(self.forward_ns)

    def as_torch_splits(self) -> "StageCosts":
        """Return the costs as torch's split backward has them: stage 0's whole backward runs in its W.

        The first stage's input needs no gradient: torch leaves its I empty, and its activations live until W.
        """
        if not self.num_stages:
            return self
        backward = self.input_grad_ns[0] + self.weight_grad_ns[0]
        return replace(
            self,
            input_grad_ns=(0, *self.input_grad_ns[1:]),
            weight_grad_ns=(backward, *self.weight_grad_ns[1:]),
            weight_grad_bytes=(self.activation_bytes[0], *self.weight_grad_bytes[1:]),
        )


def _spread(name: str, value: Any, num_stages: int) -> tuple[int, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    values = value if is_list else (value,) * num_stages
    # Measured times come as numpy's integers, which are as good.
    return tuple(one if isinstance(one, int) or not isinstance(one, Integral) else int(one) for one in values)


def _check(name: str, values: tuple[int, ...], num_stages: int) -> None:
    if len(values) != num_stages:
        raise InputError(
            f"has {len(values)} values for {num_stages} stages",
            field=name,
            value=values,
            hint="give one value, or one a stage",
        )
    limit = MAX_TIME_NS if name.endswith("_ns") else MAX_BYTES
    for one in values:
        if type(one) is not int or not 0 <= one <= limit:
            raise InputError(f"must be a whole number from 0 to {limit}", field=name, value=one)
