"""The real model for tests: fetched and converted on first use, loaded once a session.

Import the fixture into a conftest (`from tests.real_model import smollm2`) and mark the tests that use it
`real_model` and `slow`.
"""

import pytest

from dtk.models import LoadedModel, load

__all__ = ["smollm2"]


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """SmolLM2-135M-Instruct in fp32 on the CPU; shared, so leave its weights and settings as they are."""
    return load("smollm2-135m")
