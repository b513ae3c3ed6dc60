"""The checks that claims name, one module a paper, imported only when a claim of it runs.

To add a claim:

1. Write the claim into `claims/<paper>.toml`: the paper's value with its table, ours with the scale rule and
   a tolerance class, and `check = "<module>.<function>"`.
2. Write `def <function>(context: RunContext, *, ...) -> Observed` into `checks/<module>.py`. Its keyword
   arguments are the claim's `parameters`; annotate them: the values are validated against the annotations.
3. Import torch, models and papers inside the function. Draw random numbers from `context.rng("some name")`.
4. If several claims look at one experiment, get it through `context.shared(key, make)`: one generation of a
   model then serves the query cosine, the token agreement and the CPU ratio. Name it in `experiment`.
5. Call `context.progress(message, completed, total)` where it takes more than a few seconds.
6. Return `Observed(value=..., basis=..., details=..., plots=...)`. A value of several named figures is a
   dict with the names of the claim's expected value. For seeds, return `median_over_seeds(samples, ...)`.
7. Raise `NotTestableError` if this machine cannot do it after all, `RunFailedError` if a download or a disk
   failed; any other exception is recorded as a failed claim with its traceback.
8. Run `dtk repro run <id>` and `pytest tests/repro`: the tests bind every shipped claim to its check.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from dtk.repro.context import RunContext
from dtk.repro.observed import Observed, Plot, Series, median_over_seeds

__all__ = [
    "Observed",
    "Plot",
    "RunContext",
    "Series",
    "bind_check",
    "median_over_seeds",
]


def bind_check(name: str, parameters: Mapping[str, Any]) -> Callable[[RunContext], Observed]:
    """Find a check and fix its parameters.

    Args:
        name: `<module>.<function>` below this package.
        parameters: Values for the function's keyword arguments.

    Returns:
        The check, waiting for its context.

    Raises:
        ValueError: If there is no such check, or the parameters do not fit its keyword arguments.
    """
    function = _find(name)
    arguments = dict(_parameter_model(name, function).model_validate(dict(parameters)))

    def bound(context: RunContext) -> Observed:
        observed = function(context, **arguments)
        if not isinstance(observed, Observed):
            raise TypeError(f"the check {name} returned {type(observed).__name__}, not Observed")
        return observed

    return bound


def _find(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(".")
    path = f"{__name__}.{module_name}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        raise ValueError(f"no module of checks named {module_name!r} (wanted by {name!r})") from error
    function = getattr(module, function_name, None)
    if function_name not in getattr(module, "__all__", ()) or not callable(function):
        raise ValueError(f"no check named {function_name!r} in the checks of {module_name!r}")
    check: Callable[..., Any] = function
    return check


def _parameter_model(name: str, function: Callable[..., Any]) -> type[pydantic.BaseModel]:
    """Return a model of a check's keyword arguments: unknown ones are refused, strings stay strings."""
    signature = inspect.signature(function, eval_str=True)
    fields: dict[str, Any] = {
        parameter.name: (
            parameter.annotation,
            ... if parameter.default is inspect.Parameter.empty else parameter.default,
        )
        for parameter in signature.parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
    return pydantic.create_model(f"Parameters of {name}", __config__=config, **fields)
