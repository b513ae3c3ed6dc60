"""The generated reference pages, and that pages written by hand leave nothing out."""

import re
from pathlib import Path

import dtk_reference
import pydantic
import pytest
from hardware_figures import hardware_page
from number_formats import formats_page

from dtk import units
from dtk.cli.config import SECTIONS
from dtk.hardware import Sourced, packaged_catalogue
from dtk.repro.catalogue import load_papers
from dtk.repro.claim import Paper
from dtk_kernels.formats import FORMATS, Format
from tests.cli.test_help import command_paths

ROOT = Path(__file__).parent.parent.parent


def test_every_command_and_option_is_on_the_page() -> None:
    page = dtk_reference.cli_page()
    for path, command in dtk_reference.commands():
        assert f"`dtk {' '.join(path)}`" in page
        for parameter in command.params:
            if parameter.name != "help":
                name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
                assert f"`{name}`" in page
                assert " ".join(parameter.help.split()).replace("|", "\\|") in page
    assert [path for path, _ in dtk_reference.commands()] == command_paths()[1:]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_on_the_page_with_its_default(section: str) -> None:
    model = SECTIONS[section]
    page = dtk_reference.config_page(section, model)
    for name, field in model.model_fields.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert field.is_required() or f"`{field.default!r}`" in row
        assert len(row.split("|")[-2].strip()) > 10, f"{name} is not described"


@pytest.mark.parametrize("paper", load_papers(), ids=lambda paper: paper.paper)
def test_every_claim_is_on_the_page(paper: Paper) -> None:
    page = dtk_reference.claims_page(paper)
    for claim in paper.claims:
        row = next(line for line in page.splitlines() if line.startswith(f"| [`{claim.id}`]"))
        assert f"| {claim.basis} |" in row
        assert ("not testable yet" in row) == (claim.check is None)
        assert page.count(f"## `{claim.id}`") == 1
        assert " ".join(claim.statement.split()) in page
    assert f"reference/generated/claims-{paper.paper}\n" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("entry", [*packaged_catalogue().entries()], ids=lambda entry: entry.name)
def test_all_hardware_is_on_the_page_with_the_sources_of_its_figures(entry: Sourced) -> None:
    page = hardware_page()
    assert page.count(f"\n| `{entry.name}` |") == 1
    sections = page.partition("## Sources")[2].split("\n### ")
    section = next((text for text in sections if text.startswith(f"`{entry.name}`\n")), "")
    for path, _ in entry.figures():
        line = next(line for line in section.splitlines() if f"`{path}`" in line)
        assert f"]({entry.source(path).url})" in line
        assert ("*estimate*" in line) == entry.source(path).estimate


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
def test_every_number_format_is_on_the_page(format: Format) -> None:
    page = formats_page()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{format.name}` | {format.bits} |"))
    assert f"| {format.max:g} |" in row
    section = page.split(f"### `{format.name}`")[1].split("###")[0]
    positive = format.values[: 1 << (format.bits - 1)]
    cells = [cell.strip() for line in section.splitlines() for cell in line.split("|")[2:-1]]
    if not format.is_integer:
        columns = 1 << format.mantissa_bits
        values = [float(cell) for cell in cells[2 * columns :]]
        assert values == pytest.approx(positive, rel=1e-6, nan_ok=True)


class Example(pydantic.BaseModel):
    """An example.

    Attributes:
        first: Described
            on two lines.
        second: One of two | kinds.
        memory: Bytes.

    Other text that is not of the section.
    """

    first: int = pydantic.Field(ge=1, lt=9)
    second: int | str | None = None
    memory: units.Bytes = 0


def test_a_page_of_settings() -> None:
    page = dtk_reference.config_page("example", Example)
    assert "| `first` | `integer >= 1 < 9` | required | Described on two lines. |" in page
    assert "| `second` | `integer or string or null` | `None` | One of two \\| kinds. |" in page
    assert "| `memory` | `integer >= 0 or string` | `0` | Bytes. |" in page
    assert "Other text" not in page


def test_a_setting_without_a_description_is_refused() -> None:
    class Silent(pydantic.BaseModel):
        """No attributes here."""

        field: int = 1

    with pytest.raises(ValueError, match="Silent does not describe field"):
        dtk_reference.config_page("silent", Silent)


def test_every_environment_variable_of_ours_has_a_row() -> None:
    sources = [*ROOT.glob("packages/**/*.py"), *ROOT.glob("kernels/**/*.py"), *ROOT.glob("csrc/**/*.*")]
    sources += [ROOT / "noxfile.py", ROOT / "conftest.py", ROOT / "tests" / "conftest.py"]
    read = re.compile(r"(?:environ|getenv)[^\n]{0,40}?[\"'](DTK_[A-Z_]+)[\"']")
    used = {name for file in sources for name in read.findall(file.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    documented = set(re.findall(r"`(DTK_[A-Z_]+)`", page))
    assert used - documented == set()


def test_the_two_commands_of_the_readme_are_as_promised() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "pip install . && dtk repro run --quick" in lines
    assert "pip install nox && nox -s tests" in lines
    assert "pip install nox && nox -s tests" in (ROOT / ".ci" / "run").read_text()


def test_every_section_of_settings_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for section in SECTIONS:
        assert f"reference/generated/config-{section}\n" in index
