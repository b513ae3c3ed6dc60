"""The report: one HTML page that explains itself, with styles and plots inside and no script.

It is made from the run's folder alone, so that it can be made again later.
"""

from pathlib import Path
from typing import Any

from dtk.repro.claim import Claim
from dtk.repro.drawing import draw_svg
from dtk.repro.environment import environment_differences
from dtk.repro.folder import RunFolder, make_folder, write_atomically
from dtk.repro.manifest import Manifest
from dtk.repro.result import ClaimResult, count_statuses
from dtk.repro.tolerance import format_band
from dtk.repro.values import by_name, format_bytes, format_scalar, format_value

__all__ = ["GENERATOR", "render_report", "write_report"]

GENERATOR = "dtk repro"
"""The page's generator tag, by which a later run knows the file as its own and replaces it."""


def write_report(folder: RunFolder) -> Path:
    """Make `report.html` and `plots/*.svg` from the run's manifest and results; return the report's path.

    Raises:
        InputError: If the folder is damaged.
        RunFailedError: If the disk refuses.
    """
    manifest = folder.manifest()
    results = folder.results(manifest.config)
    plots = {claim.id: _plots(claim, results.get(claim.id)) for claim in manifest.config.claims}
    plot_folder = folder.path / "plots"
    if any(plots.values()):
        make_folder(plot_folder)
    for claim_id, drawn in plots.items():
        for number, (_, svg) in enumerate(drawn, start=1):
            write_atomically(plot_folder / f"{claim_id}-{number}.svg", svg + "\n")
    write_atomically(folder.report_path, render_report(manifest, results, plots))
    return folder.report_path


def render_report(
    manifest: Manifest, results: dict[str, ClaimResult], plots: dict[str, list[tuple[str, str]]]
) -> str:
    """Return the page.

    Args:
        manifest: The run's manifest.
        results: Results by claim id; a claim without one is shown as not run.
        plots: By claim id, titles and `<svg>` elements.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("dtk.repro"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    entries = [
        _entry(claim, results.get(claim.id), plots.get(claim.id, [])) for claim in manifest.config.claims
    ]
    counts = count_statuses(result for entry in entries if (result := entry["result"]) is not None)
    environment = manifest.invocations[-1].environment
    return templates.get_template("report.html.j2").render(
        generator=GENERATOR,
        manifest=manifest,
        entries=entries,
        counts=counts,
        not_run=len(entries) - sum(counts.values()),
        verdict=_verdict(counts, len(entries)),
        seconds=sum(result.seconds for result in results.values()),
        environment=_environment_rows(environment),
        differences=[
            (paper, *difference)
            for paper, reference in manifest.config.references.items()
            for difference in environment_differences(reference, environment)
        ],
        format_bytes=format_bytes,
        torch_config=(environment.get("torch") or {}).get("config", ""),
    )


def _plots(claim: Claim, result: ClaimResult | None) -> list[tuple[str, str]]:
    if result is None:
        return []
    prefix = claim.id.replace(".", "-")
    return [
        (plot.title, draw_svg(plot, prefix=f"{prefix}-{number}"))
        for number, plot in enumerate(result.plots, start=1)
    ]


def _entry(claim: Claim, result: ClaimResult | None, plots: list[tuple[str, str]]) -> dict[str, Any]:
    observed = by_name(result.observed) if result is not None and result.observed is not None else {}
    published = by_name(claim.published.value) if claim.published.value is not None else {}
    expected = by_name(claim.expected.value)
    figures = []
    for name, value in expected.items():
        band = (result.bands if result else claim.expected.bands()).get(name)
        figures.append(
            {
                "name": name,
                "published": _published(published, name, alone=len(expected) == 1),
                "expected": format_scalar(value),
                "observed": format_scalar(observed[name]) if name in observed else "–",
                "band": format_band(band, claim.expected.tolerance.kind),
            }
        )
    return {
        "claim": claim,
        "result": result,
        "status": result.status if result else "not-run",
        "figures": figures,
        "published_elsewhere": [
            format_value({name: value}, names=True)
            for name, value in published.items()
            if name not in expected
        ],
        "details": [(name, _detail(value)) for name, value in (result.details if result else {}).items()],
        "plots": plots,
    }


def _published(published: dict[str, Any], name: str, *, alone: bool) -> str:
    """Return the paper's figure; its range where it has several, of several models say, and we have one."""
    if name in published:
        return format_scalar(published[name])
    if alone and published and all(isinstance(value, (int, float)) for value in published.values()):
        return f"{format_scalar(min(published.values()))} to {format_scalar(max(published.values()))}"
    return "–"


def _detail(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_detail(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_detail(item)}" for name, item in value.items())
    return format_value(value)


def _verdict(counts: dict[Any, int], total: int) -> str:
    testable = counts["pass"] + counts["fail"]
    if counts["fail"]:
        return f"{counts['fail']} of {testable} testable claims do not hold here"
    if not testable:
        return "Nothing was testable here"
    done = "so far " if sum(counts.values()) < total else ""
    if testable == 1:
        return f"The one claim tested {done}holds here"
    return f"All {testable} claims tested {done}hold here"


def _environment_rows(environment: dict[str, Any]) -> list[tuple[str, str]]:
    cpu, torch, git = environment.get("cpu", {}), environment.get("torch") or {}, environment.get("git")
    packages = environment.get("packages", {})
    rows = {
        "dtk": environment.get("dtk"),
        "Commit": git and git["commit"] + (" with local changes" if git["dirty"] else ""),
        "Processor": cpu.get("model"),
        "Cores": f"{cpu.get('available_cores')} available of {cpu.get('logical_cores')} logical",
        "Instruction sets": ", ".join(cpu.get("flags", [])),
        "Memory": format_bytes(environment.get("memory_bytes", 0)),
        "GPU": ", ".join(torch.get("gpus", [])) or "none",
        "System": f"{environment.get('os')}, {environment.get('kernel')}, {environment.get('machine')}",
        "Python": f"{environment.get('python')} ({environment.get('python_implementation')})",
        "torch": f"{torch.get('version')}, {torch.get('cpu_capability')}, {torch.get('threads')} threads",
        "Packages": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
        "Variables": ", ".join(f"{name}={value}" for name, value in environment.get("variables", {}).items())
        or "none",
    }
    return [(name, str(value)) for name, value in rows.items() if value]
