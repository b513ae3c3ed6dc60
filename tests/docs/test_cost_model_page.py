"""The generated page of the cost model's accuracy leaves nothing out."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping

import pytest
from cost_model_accuracy import accuracy_pages

from dtk.costmodel.constants import chip_constants, stack_constants
from dtk.pipeline.iteration.accuracy.misses import misses
from dtk.pipeline.iteration.accuracy.ranking import CALCULON
from dtk.pipeline.iteration.accuracy.sets import judged_sets

CHIPS = [chip_constants(f"{chip}GB") for chip in ("A100-SXM-80", "V100-SXM-32", "H100-SXM-96", "GH200-96")]
STACKS = [stack_constants(), stack_constants("torch-fsdp2"), stack_constants("torch-fsdp2-eager")]


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return accuracy_pages()


def test_sets_bars_and_notes_are_on_the_page(pages: Mapping[str, str]) -> None:
    page = pages["cost-model-accuracy.md"]
    section = page.partition("## Bars")[2].partition("## All tables")[0]
    for judged in judged_sets():
        assert page.count(f"\n| `{judged.name}` | {judged.title} |") == 1
        assert section.count(f"\n| {judged.title} | {len(judged.runs)} |") == len(judged.bars)
        assert judged.note in page
    assert "**no**" not in page
    assert section.count("| yes | 13 |") == 6
    assert "| yes | 0 | 0 | 0 |" in section


def test_every_reason_and_every_constant_is_on_the_page(pages: Mapping[str, str]) -> None:
    page = pages["cost-model-accuracy.md"]
    for miss in misses():
        assert any(f"`{name}`, *{miss.kind}*. {miss.reason}\n" in page for name in miss.sets)
    for owner in (*CHIPS, *STACKS):
        for name, origin in owner.origins.items():
            line = next(line for line in page.splitlines() if line.startswith(f"| {owner.name} | `{name}` |"))
            borrowed = f", borrowed from {origin.borrowed_from}" if origin.borrowed_from else ""
            assert line.endswith(f"| {origin.origin}{borrowed} | {origin.source} |")
    assert CALCULON.source in page


def test_pictures_are_whole_and_all_shown(pages: Mapping[str, str]) -> None:
    pictures = [name for name in pages if name.endswith(".svg")]
    assert len(pictures) == 6
    for name in pictures:
        root = ET.fromstring(pages[name])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "(simulated)" in pages[name]
        assert pages["cost-model-accuracy.md"].count(f"]({name})") == 1
