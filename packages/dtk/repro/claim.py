"""What a claim is: the schema of `claims/<paper>.toml`.

A claim holds two values. `published` is the paper's, with its table or figure. `expected` is ours at the
scale that a small machine can run, with the rule that leads from one to the other and a band around it.
"""

from typing import Literal

import pydantic

from dtk.repro.tolerance import Band, Tolerance, judge
from dtk.repro.values import Basis, Model, Value, by_name
from dtk.units import Bytes

__all__ = ["CLAIMS_SCHEMA", "Claim", "Expected", "Paper", "Published", "Requirement"]

CLAIMS_SCHEMA = "dtk.claims/1"

Requirement = Literal["gpu"]


class Published(Model):
    """What the paper reports.

    Attributes:
        value: The figure or the named figures; None where the paper argues without a figure.
        source: The table, figure or section that it stands in.
        reading: `stated` in words or a table, read off a `chart`, or `derived` from stated figures.
        note: What a reader should know about it.
    """

    value: Value | None = None
    source: str
    reading: Literal["stated", "chart", "derived"] = "stated"
    note: str = ""


class Expected(Model):
    """What dtk expects here.

    Attributes:
        value: The figure or the named figures.
        tolerance: The tolerance class with its parameters.
        scale_rule: How the value follows from the paper's, or why it differs.
    """

    value: Value
    tolerance: Tolerance
    scale_rule: str

    def bands(self) -> dict[str, Band | None]:
        """Return the band of each figure by name, an unnamed one under the empty name."""
        return {name: self.tolerance.band(name, figure) for name, figure in by_name(self.value).items()}

    @pydantic.model_validator(mode="after")
    def _lies_in_its_own_band(self) -> "Expected":
        figures = by_name(self.value)
        for end in ("low", "high"):
            bounds = getattr(self.tolerance, end, None)
            if isinstance(bounds, dict) and not bounds.keys() <= figures.keys():
                raise ValueError(
                    f"{end} names {sorted(bounds.keys() - figures.keys())}, which value does not have"
                )
        for name, band in self.bands().items():
            if band == (None, None):
                raise ValueError(f"{name!r} has no band")
        verdict = judge(self.value, self.tolerance, self.value)
        if not verdict.passed:
            raise ValueError(f"the expected value lies outside its own band: {verdict.reason}")
        return self


class Claim(Model):
    """One claim of a paper and how it is checked.

    Attributes:
        id: `<paper>.<short-name>`; users type it.
        title: A few words for the table.
        where: The paper's table, figure or section.
        statement: The claim in one or two sentences of our own.
        unit: Unit of the values, for people; empty for plain numbers.
        check: `<module>.<function>` below `dtk.repro.checks`; None where dtk has no check yet.
        parameters: Keyword arguments of the check.
        basis: What the observed value will rest on.
        experiment: Name of an experiment that several claims of a run share (`RunContext.shared`).
        minutes: Rough time on two cores; in one run, claims of one experiment take it once.
        memory: Rough peak memory, with unit; the claim is not testable where less is free.
        quick: Whether `--quick` runs it; it also lists the claims without a check, which cost nothing.
        requires: What the machine must have.
        untestable: Why there is no check, for a claim without one.
    """

    id: str = pydantic.Field(pattern=r"^[a-z0-9]+\.[a-z0-9]+(-[a-z0-9]+)*$")
    title: str = pydantic.Field(min_length=1, max_length=80)
    where: str
    statement: str
    unit: str = ""
    published: Published
    expected: Expected
    check: str | None = pydantic.Field(default=None, pattern=r"^[a-z0-9_]+\.[a-z][a-z0-9_]*$")
    parameters: dict[str, pydantic.JsonValue] = pydantic.Field(default_factory=dict)
    basis: Basis
    experiment: str | None = None
    minutes: float = pydantic.Field(ge=0)
    memory: Bytes
    quick: bool = False
    requires: tuple[Requirement, ...] = ()
    untestable: str | None = None

    @property
    def paper(self) -> str:
        """The paper's short name, the first part of the id."""
        return self.id.partition(".")[0]

    @pydantic.model_validator(mode="after")
    def _has_a_check_or_a_reason(self) -> "Claim":
        if (self.check is None) == (self.untestable is None):
            raise ValueError("a claim has either a check or, in untestable, the reason why there is none")
        return self


class Paper(Model):
    """One claims file.

    Attributes:
        claims_schema: Version of the file's shape (key `schema`).
        paper: Short name, equal to the file's name and to the first part of each claim's id.
        title: The paper's title.
        citation: Where to find it.
        reference: The machine and versions that our expected values were set on; reports show differences.
        claims: The claims, in the order in which they run.
    """

    claims_schema: Literal["dtk.claims/1"] = pydantic.Field(alias="schema")
    paper: str
    title: str
    citation: str
    reference: dict[str, str] = pydantic.Field(default_factory=dict)
    claims: tuple[Claim, ...]

    @pydantic.model_validator(mode="after")
    def _ids_fit(self) -> "Paper":
        ids = [claim.id for claim in self.claims]
        repeated = sorted({claim_id for claim_id in ids if ids.count(claim_id) > 1})
        if repeated:
            raise ValueError(f"claim ids occur twice: {', '.join(repeated)}")
        foreign = [claim.id for claim in self.claims if claim.paper != self.paper]
        if foreign:
            raise ValueError(f"claim ids do not start with {self.paper!r}: {', '.join(foreign)}")
        return self
