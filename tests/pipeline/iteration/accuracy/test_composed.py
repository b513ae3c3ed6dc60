"""The table of one node is composed; others are not."""

import pytest

from dtk.costmodel.measurements import vtrain_multi_node, vtrain_single_node, zero_bubble
from dtk.pipeline.iteration.accuracy.composed import affine_groups
from dtk.pipeline.iteration.accuracy.sets import fitted_half, judged_half


def test_times_in_one_node_are_affine_in_micro_batches_to_the_last_digit() -> None:
    groups = affine_groups(vtrain_single_node())
    assert len(groups) == 69
    assert sum(len(group.runs) for group in groups) == 211
    assert max(group.residual for group in groups) < 1e-14
    assert all(group.micro_batch_s > 0 for group in groups)


def test_most_of_these_lines_cross_both_halves() -> None:
    halves = {name: set(map(id, half(vtrain_single_node()))) for name, half in HALVES.items()}
    crossing = sum(
        all(any(id(run) in rows for run in group.runs) for rows in halves.values())
        for group in affine_groups(vtrain_single_node())
    )
    assert crossing > 69 / 2


HALVES = {"fitted": fitted_half, "judged": judged_half}


def test_timings_of_whole_iterations_are_not_affine() -> None:
    assert affine_groups(vtrain_multi_node()) == ()
    groups = affine_groups(run for run in zero_bubble() if run.schedule == "1f1b")
    assert len(groups) == 4
    assert all(1e-5 < group.residual < 1e-2 for group in groups)
    assert groups[0].runs[0].num_microbatches == 24
    first = groups[0]
    predicted = first.fixed_s + 64 * first.micro_batch_s
    assert predicted == pytest.approx(first.runs[-1].measured_s)
