"""Reads profiles of layers from a file: TOML or JSON with `rows`, or CSV with a column for each key.

A row is one part at one micro-batch:

    model            name of the catalogue of models, or path of a model file
    chip             name of the hardware catalogue
    precision        bf16, fp16, fp8, tf32, fp32
    tensor_parallel  ranks that share a layer
    sequence_tokens  tokens of a sequence
    part             layer, embedding or head
    micro_batch      sequences
    forward_s        seconds of the forward pass
    backward_s       seconds of the whole backward pass, or instead of it
    input_grad_s, weight_grad_s   the two of which it consists
    update_s         seconds of the optimizer's step on these weights (may be left out)
    sequence_parallel, flash_attention   true or false (left out: not checked)
    source           who measured, when and how

What all rows share can stand once beside `rows`.
"""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic

from dtk.configuration import read_config_file, validate
from dtk.costmodel.measurements.records import LayerPart
from dtk.costmodel.profiles import Conditions, MeasuredPart, ModelProfile
from dtk.errors import InputError
from dtk.hardware.catalogue import Catalogue, packaged_catalogue
from dtk.hardware.model import Precision
from dtk.workload.reading import load_shape

__all__ = ["load_profiles"]

_FIELD: Final = "profiles"
_MAX_BYTES: Final = 64 * 2**20

Seconds = Annotated[float, pydantic.Field(ge=0, lt=1e4)]
Count = Annotated[int, pydantic.Field(ge=1, le=2**40)]


class _Row(pydantic.BaseModel):
    """One row of a file."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[str, pydantic.Field(min_length=1)]
    chip: str
    precision: Precision
    tensor_parallel: Count = 1
    sequence_tokens: Count
    sequence_parallel: bool | None = None
    flash_attention: bool | None = None
    part: LayerPart = "layer"
    micro_batch: Count
    forward_s: Annotated[float, pydantic.Field(gt=0, lt=1e4)]
    backward_s: Annotated[float, pydantic.Field(gt=0, lt=1e4)] | None = None
    input_grad_s: Seconds | None = None
    weight_grad_s: Seconds | None = None
    update_s: Seconds | None = None
    source: Annotated[str, pydantic.Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _one_backward(self) -> "_Row":
        parts = (self.input_grad_s, self.weight_grad_s)
        if (self.backward_s is None) == (None in parts) or (self.backward_s is not None and any(parts)):
            raise InputError("needs either backward_s, or input_grad_s and weight_grad_s")
        if parts == (0.0, 0.0):
            raise InputError("a backward pass takes some time", field="input_grad_s", value=0.0)
        return self

    def conditions(self, catalogue: Catalogue) -> Conditions:
        return Conditions(
            shape=load_shape(self.model),
            chip=catalogue.chip(self.chip).name,
            precision=self.precision,
            tensor_parallel=self.tensor_parallel,
            sequence_tokens=self.sequence_tokens,
            sequence_parallel=self.sequence_parallel,
            flash_attention=self.flash_attention,
        )

    def measured(self) -> MeasuredPart:
        backward_s = self.backward_s
        if backward_s is None:
            backward_s = (self.input_grad_s or 0.0) + (self.weight_grad_s or 0.0)
        return MeasuredPart(
            part=self.part,
            micro_batch=self.micro_batch,
            forward_s=self.forward_s,
            backward_s=backward_s,
            input_grad_s=self.input_grad_s,
            update_s=self.update_s,
        )


def load_profiles(file: Path, catalogue: Catalogue | None = None) -> tuple[ModelProfile, ...]:
    """Return the profiles of a file, one for each set of conditions.

    Args:
        file: A .toml, .yaml, .json or .csv file.
        catalogue: Where chips are looked up; the packaged catalogue without it.

    Raises:
        InputError: If the file cannot be read, or for the first row that cannot be.
    """
    grouped: dict[tuple[Conditions, str], list[MeasuredPart]] = {}
    for number, values in enumerate(_rows(file), start=1):
        try:
            row = validate(_Row, values)
            conditions = row.conditions(catalogue or packaged_catalogue())
        except InputError as error:
            where = f"{_FIELD}: row {number}" + (f": {error.field}" if error.field else "")
            raise InputError(error.message, field=where, value=error.value, hint=error.hint) from error
        grouped.setdefault((conditions, row.source), []).append(row.measured())
    if not grouped:
        raise InputError("has no rows", field=_FIELD, value=str(file))
    return tuple(
        ModelProfile(conditions, source, "measured", tuple(rows))
        for (conditions, source), rows in grouped.items()
    )


def _rows(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".csv":
        return _csv_rows(_text(file))
    if file.suffix == ".json":
        values = _json(file)
    else:
        try:
            values = read_config_file(file)
        except InputError as error:
            hint = "use .toml, .yaml, .json or .csv" if "kind of file" in error.message else error.hint
            raise InputError(error.message, field=_FIELD, value=error.value, hint=hint) from error
    rows = values.pop("rows", None)
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError("needs a list of rows", field=_FIELD, value=str(file))
    return [values | dict(row) for row in rows]


def _json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}", field=_FIELD, value=str(file)) from error
    if not isinstance(values, dict):
        raise InputError("must hold a table of keys and values", field=_FIELD, value=str(file))
    return values


def _csv_rows(text: str) -> list[dict[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        rows = []
        for row in reader:
            if None in row:
                raise InputError("has more cells than there are columns", field=_FIELD, value=row[None])
            rows.append({key: _cell(value) for key, value in row.items() if value})
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", field=_FIELD) from error
    return rows


def _cell(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            raise InputError("is no file", field=_FIELD, value=str(file))
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"has more than {_MAX_BYTES >> 20} MiB", field=_FIELD, value=str(file))
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the file: {error}", field=_FIELD, value=str(file)) from error
