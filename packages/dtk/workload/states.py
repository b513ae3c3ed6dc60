"""Bytes of model states: weights, gradients and optimizer, by precision recipe and sharding stage.

Sharding stages as in ZeRO (arXiv 1910.02054): 1 shards the optimizer states over D ranks, 2 the gradients
too, 3 the weights too. Hybrids shard weights and gradients inside a group and may shard the optimizer states
over its replicas as well (ZeRO-3 with ZeRO-1 across groups, one of ZeroPP's two hybrids, arXiv 2402.03791).
It leaves out communication buffers and what allocators waste.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dtk.errors import InputError

__all__ = ["RECIPES", "PrecisionRecipe", "Sharding", "StateBytes", "recipe", "state_bytes"]


@dataclass(frozen=True, slots=True)
class PrecisionRecipe:
    """Bytes that one parameter takes.

    Attributes:
        name: How it is called in configurations.
        weight_bytes: The weight that the layers compute with.
        gradient_bytes: The gradient as it is accumulated.
        optimizer_bytes: Master weight and moments.
        element_bytes: An activation.
        description: What the figures are made of.
        source: Where they come from.
    """

    name: str
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    element_bytes: int
    description: str
    source: str

    @property
    def bytes_per_parameter(self) -> int:
        """Everything, without sharding."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


_ALL = (
    PrecisionRecipe(
        "adam-fp32-gradients",
        2,
        4,
        12,
        2,
        "16-bit weights, fp32 gradients, fp32 master weights and two fp32 moments",
        "Megatron-LM, theoretical_memory_usage.py: 18, or 6 + 12/D with a distributed optimizer",
    ),
    PrecisionRecipe(
        "adam-16bit-gradients",
        2,
        2,
        12,
        2,
        "16-bit weights and gradients, fp32 master weights and two fp32 moments",
        "ZeRO, arXiv 1910.02054, section 3.1: 16",
    ),
    PrecisionRecipe(
        "adam-fp32", 4, 4, 8, 4, "everything in fp32, two moments, no master copy", "Adam, arXiv 1412.6980"
    ),
    PrecisionRecipe(
        "adam-pure-16bit", 2, 2, 4, 2, "everything in 16 bits, no master copy", "Adam, arXiv 1412.6980"
    ),
    PrecisionRecipe(
        "adam-8bit",
        2,
        2,
        6,
        2,
        "16-bit weights and gradients, fp32 master weights, two 8-bit moments (block scales left out)",
        "8-bit optimizers, arXiv 2110.02861",
    ),
    PrecisionRecipe(
        "sgd-momentum-fp32", 4, 4, 4, 4, "everything in fp32, one momentum", "definition of the method"
    ),
)
RECIPES: Final[Mapping[str, PrecisionRecipe]] = MappingProxyType({entry.name: entry for entry in _ALL})
"""The known precision recipes by name."""


def recipe(name: str) -> PrecisionRecipe:
    """Return the precision recipe of that name.

    Raises:
        InputError: If there is none, with the names that there are.
    """
    if name not in RECIPES:
        raise InputError("unknown recipe", field="recipe", value=name, hint=f"one of {', '.join(RECIPES)}")
    return RECIPES[name]


@dataclass(frozen=True, slots=True)
class Sharding:
    """How model states are spread over data-parallel ranks.

    Attributes:
        stage: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too.
        ranks: Ranks of a sharding group, D.
        optimizer_replicas: Groups over which the optimizer states are sharded further: 1 for plain replicas.
    """

    stage: int = 0
    ranks: int = 1
    optimizer_replicas: int = 1

    def __post_init__(self) -> None:
        if self.stage not in range(4):
            raise InputError("must be 0, 1, 2 or 3", field="sharding_stage", value=self.stage)
        for field, value in (("ranks", self.ranks), ("optimizer_replicas", self.optimizer_replicas)):
            if value < 1:
                raise InputError("must be at least 1", field=field, value=value)

    @property
    def weight_shards(self) -> int:
        """Over how many ranks the weights are spread."""
        return self.ranks if self.stage >= 3 else 1

    @property
    def gradient_shards(self) -> int:
        """Over how many ranks the gradients are spread."""
        return self.ranks if self.stage >= 2 else 1

    @property
    def optimizer_shards(self) -> int:
        """Over how many ranks the optimizer states are spread."""
        return (self.ranks if self.stage >= 1 else 1) * self.optimizer_replicas


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes of a rank's model states.

    Attributes:
        weights_bytes: Weights that the rank keeps.
        gradients_bytes: Gradients that the rank keeps.
        optimizer_bytes: Optimizer states that the rank keeps.
        gathered_weights_bytes: Full weights gathered for the moment, beside the shards.
        gradient_buffer_bytes: Full gradients before they are reduced, beside the shards.
    """

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    gathered_weights_bytes: int = 0
    gradient_buffer_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        kept = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return kept + self.gathered_weights_bytes + self.gradient_buffer_bytes


def state_bytes(
    num_parameters: int,
    precision: PrecisionRecipe,
    sharding: Sharding | None = None,
    *,
    gathered_parameters: int = 0,
    unreduced_parameters: int = 0,
) -> StateBytes:
    """Return the bytes of model states on one rank.

    Args:
        num_parameters: Parameters of the rank's stages, after tensor parallelism
            (`StageParameters.per_rank`), before sharding.
        precision: Bytes of a parameter.
        sharding: How they are spread; nothing is sharded without it. Shards are rounded up.
        gathered_parameters: Parameters gathered at once, under stage 3 (k chunks).
        unreduced_parameters: Parameters whose full gradient waits to be reduced, under stage 2 and 3.

    Raises:
        InputError: If a count is negative, or parameters are gathered or unreduced where nothing is sharded.
    """
    sharding = sharding or Sharding()
    extras = {"gathered_parameters": gathered_parameters, "unreduced_parameters": unreduced_parameters}
    for field, value in {"num_parameters": num_parameters, **extras}.items():
        if value < 0:
            raise InputError("must not be negative", field=field, value=value)
    for (field, value), stage in zip(extras.items(), (3, 2), strict=True):
        if value and sharding.stage < stage:
            raise InputError(f"needs sharding stage {stage} or more", field=field, value=value)
    return StateBytes(
        precision.weight_bytes * _shard(num_parameters, sharding.weight_shards),
        precision.gradient_bytes * _shard(num_parameters, sharding.gradient_shards),
        precision.optimizer_bytes * _shard(num_parameters, sharding.optimizer_shards),
        precision.weight_bytes * gathered_parameters,
        precision.gradient_bytes * unreduced_parameters,
    )


def _shard(count: int, ranks: int) -> int:
    return -(-count // ranks)
