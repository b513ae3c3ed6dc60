"""Every judged set predicted once."""

from collections.abc import Mapping

import pytest

from dtk.pipeline.iteration.accuracy.judging import SetAccuracy, judge_all


@pytest.fixture(scope="session")
def accuracies() -> Mapping[str, SetAccuracy]:
    return {accuracy.judged.name: accuracy for accuracy in judge_all()}
