"""A training job (batch, sequence, precision) and how a layout of ranks cuts it, with one-line refusals."""

from typing import Annotated, Final

import pydantic

from dtk.configuration import validate
from dtk.errors import InputError
from dtk.workload.activations import ActivationSettings
from dtk.workload.flops import Recomputation
from dtk.workload.parameters import check_tensor_parallel
from dtk.workload.states import PrecisionRecipe, recipe
from dtk.workload.transformer import TransformerShape

__all__ = ["Layout", "TrainingJob", "check_layout"]

_MAX: Final = 2**40
Positive = Annotated[int, pydantic.Field(ge=1, le=_MAX)]


class Layout(pydantic.BaseModel):
    """How many ranks each kind of parallelism has.

    Attributes:
        data_parallel: Replicas of the pipeline, or ranks that shard one (D).
        tensor_parallel: Ranks that share each layer, t.
        pipeline_parallel: Ranks of a pipeline, P.
        chunks: Model chunks of a pipeline rank, V.
        sequence_parallel: Whether tensor parallelism cuts norms and dropout along the sequence.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    data_parallel: Positive = 1
    tensor_parallel: Positive = 1
    pipeline_parallel: Positive = 1
    chunks: Positive = 1
    sequence_parallel: bool = False

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    @property
    def num_stages(self) -> int:
        """Pipeline stages, P V."""
        return self.pipeline_parallel * self.chunks


class TrainingJob(pydantic.BaseModel):
    """What one iteration trains on, and in which precision.

    Attributes:
        global_batch: Sequences of an iteration, B.
        sequence_tokens: Tokens of a sequence, s.
        micro_batch: Sequences of a micro-batch, b.
        recipe: Precision and optimizer by name (`dtk.workload.states.RECIPES`).
        recomputation: What the backward pass computes again.
        flash_attention: Whether attention keeps no scores.
        dropout: Whether attention, MLP and embedding have dropout.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    global_batch: Positive
    sequence_tokens: Positive
    micro_batch: Positive = 1
    recipe: str = "adam-fp32-gradients"
    recomputation: Recomputation = "none"
    flash_attention: bool = True
    dropout: bool = False

    @pydantic.field_validator("recipe")
    @classmethod
    def _known_recipe(cls, name: str) -> str:
        return recipe(name).name

    @classmethod
    def from_values(cls, values: dict[str, object]) -> "TrainingJob":
        """Build a job from plain values, such as a table of a file.

        Raises:
            InputError: For an unknown key or a value that does not fit.
        """
        return validate(cls, values)

    @property
    def precision(self) -> PrecisionRecipe:
        """The precision recipe."""
        return recipe(self.recipe)

    @property
    def global_batch_tokens(self) -> int:
        """Tokens of an iteration."""
        return self.global_batch * self.sequence_tokens

    def num_microbatches(self, data_parallel: int) -> int:
        """Return M, the micro-batches of each pipeline in an iteration.

        Raises:
            InputError: If the batch does not divide.
        """
        together = data_parallel * self.micro_batch
        if data_parallel < 1 or self.global_batch % together:
            below = self.global_batch // together * together if together > 0 else 0
            near = f"{below} or {below + together}" if below else f"{together}"
            message = (
                f"must be a multiple of {together}, data-parallel ranks ({data_parallel}) times micro-batch "
                f"({self.micro_batch})"
            )
            raise InputError(message, field="global_batch", value=self.global_batch, hint=f"try {near}")
        return self.global_batch // together

    def activation_settings(self, layout: Layout) -> ActivationSettings:
        """Return how a micro-batch is run under `layout`."""
        return ActivationSettings(
            micro_batch=self.micro_batch,
            sequence_tokens=self.sequence_tokens,
            tensor_parallel=layout.tensor_parallel,
            sequence_parallel=layout.sequence_parallel,
            recomputation=self.recomputation,
            flash_attention=self.flash_attention,
            attention_dropout=self.dropout,
            hidden_dropout=self.dropout,
            element_bytes=self.precision.element_bytes,
        )


def check_layout(
    shape: TransformerShape, job: TrainingJob, layout: Layout, *, even_stages: bool = True
) -> None:
    """Refuse a layout that does not cut the model and the batch evenly.

    Args:
        shape: The model.
        job: What is trained on.
        layout: The ranks.
        even_stages: Whether all stages have as many layers. Others are said layer by layer
            (`stage_parameters`), and not checked here.

    Raises:
        InputError: For the first thing that does not divide, naming both sizes and what would.
    """
    limit = shape.sequence_limit
    if limit is not None and job.sequence_tokens > limit:
        message = f"is longer than the {limit} positions of {shape.name}"
        raise InputError(message, field="sequence_tokens", value=job.sequence_tokens)
    check_tensor_parallel(shape, layout.tensor_parallel)
    job.activation_settings(layout)
    if even_stages and shape.num_layers % layout.num_stages:
        message = (
            f"times the {layout.chunks} chunks of a rank must divide the {shape.num_layers} layers of "
            f"{shape.name}"
        )
        raise InputError(message, field="pipeline_parallel", value=layout.pipeline_parallel)
    job.num_microbatches(layout.data_parallel)
