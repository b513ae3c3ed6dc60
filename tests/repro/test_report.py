"""The report: well-formed, self-contained, readable without script, and deaf to hostile text."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dtk.repro.context import RunContext
from dtk.repro.drawing import draw_svg
from dtk.repro.folder import RunFolder
from dtk.repro.observed import Plot, Series
from dtk.repro.report import write_report
from dtk.repro.result import RunConfig
from dtk.repro.runner import run_claims
from dtk.repro.session import copy_report
from tests.repro.sample_checks import HOSTILE
from tests.repro.samples import claim, install, parse
from tests.repro.test_runner import Recorder

VOID = {"meta", "br", "link", "img", "input", "hr", "base"}
FETCHING = {"script", "link", "img", "iframe", "object", "embed", "base", "audio", "video", "source", "form"}


class Page(HTMLParser):
    """Checks nesting and ids, and collects text, tags and everything that could fetch something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.styles: list[str] = []
        self.feed(html)
        self.close()
        assert self.stack == [], f"not closed: {self.stack}"
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} has {name}"
            if name == "id":
                self.ids.append(str(value))
            if name in {"href", "src", "xlink:href", "srcset", "action", "data", "poster"}:
                self.links.append(str(value))
            if name == "style" or "url(" in str(value):
                self.styles.append(str(value))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.styles if self.stack and self.stack[-1] == "style" else self.words).append(data)


def assert_self_contained(page: Page) -> None:
    assert not page.tags & FETCHING
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links), page.links
    for style in page.styles:
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", style))
        assert "@import" not in style
    assert len(page.ids) == len(set(page.ids))


@pytest.fixture
def make_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    install(tmp_path, monkeypatch)

    def make(
        *claims: dict[str, Any], argv: tuple[str, ...] = ("dtk",), interrupt_at: str | None = None
    ) -> Page:
        config = RunConfig(
            claims=parse(*claims),
            references={"sample": {"python": "2.7", "cores": "2"}},
            seed=0,
            threads=1,
            source_hash="0",
        )
        environment = {
            "python": "3.11.7",
            "cpu": {"model": HOSTILE, "flags": ["avx2"], "available_cores": 2, "logical_cores": 4},
            "torch": {"version": "2.13.0+cpu", "cpu_capability": "AVX2", "config": HOSTILE},
            "variables": {"DTK_X": HOSTILE},
            "git": {"commit": "abc", "dirty": True},
            "memory_bytes": 1 << 33,
        }
        folder = RunFolder.create(tmp_path / "runs", config, argv, environment)
        run_claims(folder, config, RunContext(seed=0, threads=1), Recorder(interrupt_at))
        path = write_report(folder)
        first = path.read_text(encoding="utf-8")
        assert write_report(RunFolder.open(folder.path)).read_text(encoding="utf-8") == first
        page = Page(first)
        assert_self_contained(page)
        return page

    return make


def test_hostile_text_stays_text(make_report: Any) -> None:
    hostile = claim(
        "sample.hostile",
        "hostile",
        title=HOSTILE[:80],
        statement=HOSTILE,
        where=HOSTILE,
        unit=HOSTILE,
        published={"value": {HOSTILE: 1}, "source": HOSTILE, "note": HOSTILE},
    )
    page = make_report(hostile, claim("sample.crash", "crash"), argv=("dtk", HOSTILE))
    shown = " ".join(HOSTILE.split())
    # statement, where, note, source, paper's value, unit, detail twice, plots, environment, command
    assert page.text.count(shown) >= 12
    assert {"svg", "pre", "table"} <= page.tags


def test_every_status_is_explained(make_report: Any) -> None:
    page = make_report(
        claim("sample.good", "constant", parameters={"value": 1}),
        claim("sample.off", "constant", parameters={"value": 2}),
        claim("sample.crash", "crash"),
        claim("sample.away", None, untestable="needs another machine"),
        claim("sample.open", "constant", parameters={"value": 1}),
        interrupt_at="sample.open",
    )
    assert page.text.startswith("dtk repro: 2 of 3 testable claims do not hold here")
    for text in (
        "observed 2 is above the band, which ends at 1",
        "ZeroDivisionError",
        "needs another machine",
        "1 not run yet",
        "not testable",
        "abc with local changes",
        "2.7 3.11.7",
        "dtk repro run sample.off --seed 0 --threads 1",
    ):
        assert text in page.text
    assert "cores 2 2" not in page.text


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([claim("sample.a", "constant", parameters={"value": 1})], "The one claim tested holds here"),
        ([claim("sample.a", None, untestable="no")], "Nothing was testable here"),
    ],
)
def test_the_title_is_the_verdict(make_report: Any, claims: list[dict[str, Any]], verdict: str) -> None:
    assert make_report(*claims).text.startswith(f"dtk repro: {verdict}")


def test_figures_stand_in_the_table(make_report: Any) -> None:
    page = make_report(
        claim(
            "sample.named",
            "constant",
            parameters={"value": {"x": 12345, "y": 0.51234}},
            expected={"x": 12345, "y": 0.5},
            tolerance={"kind": "statistical", "low": 0.25},
            published={"value": {"x": 9, "elsewhere": 7}, "source": "table 1", "reading": "chart"},
        )
    )
    assert "pass x 9 12,345 12,345 at least 0.25 y" in page.text
    assert "y – 0.5 0.5123 at least 0.25" in page.text
    assert "read off a chart: elsewhere: 7" in page.text


def test_only_our_own_report_is_overwritten(tmp_path: Path, make_report: Any) -> None:
    make_report(claim("sample.a", "constant", parameters={"value": 1}))
    report = next((tmp_path / "runs").glob("*/report.html"))
    target = tmp_path / "report.html"
    assert copy_report(report, target)
    assert copy_report(report, target)
    assert target.read_text() == report.read_text()
    target.write_bytes(b"<html>a person's own \xff</html>")
    assert not copy_report(report, target)
    assert target.read_bytes() == b"<html>a person's own \xff</html>"


def line_plot(**fields: Any) -> Plot:
    series = (Series(name="s", x=(1.0, 10.0), y=(0.1, 100.0), basis="measured"),)
    return Plot.model_validate({"title": "t", "x_label": "x", "y_label": "y", "series": series} | fields)


def test_drawings_are_the_same_bytes_each_time_and_differ_by_data() -> None:
    assert draw_svg(line_plot()) == draw_svg(line_plot())
    assert draw_svg(line_plot()) != draw_svg(line_plot(y_scale="log"))
    assert draw_svg(line_plot()) != draw_svg(line_plot(lines={"paper": 50.0}))


def test_drawings_say_what_the_figures_rest_on() -> None:
    page = Page(draw_svg(line_plot(lines={"paper": 50.0}), prefix="p"))
    assert "s (measured)" in page.text
    assert "paper" in page.text
    assert all(item.startswith("p-") for item in page.ids)


def test_an_empty_plot_and_one_of_gaps_can_be_drawn() -> None:
    gaps = (Series(name="s", x=("a", "b"), y=(None, None), style="bars", basis="measured"),)
    for series in ((), gaps):
        Page(draw_svg(line_plot(series=series)))


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw_svg(line_plot())
    assert dict(mpl.rcParams) == before


def test_a_lopsided_series_is_refused() -> None:
    with pytest.raises(ValueError, match="2 x and 1 y"):
        Series(name="s", x=(1.0, 2.0), y=(1.0,), basis="measured")


def test_one_figure_of_ours_beside_several_of_the_papers_shows_their_range() -> None:
    from dtk.repro.report import _published

    several = {"one model": 0.94, "another": 0.97, "a third": 0.93}
    assert _published(several, "value", alone=True) == "0.93 to 0.97"
    assert _published(several, "value", alone=False) == "–"
    assert _published(several, "another", alone=True) == "0.97"
    assert _published({}, "value", alone=True) == "–"
