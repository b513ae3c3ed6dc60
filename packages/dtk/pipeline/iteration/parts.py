"""The times of a run's layers, embedding and head: from a profile where there is one, else the roofline."""

from dtk.costmodel.layer import PartTime, embedding_time, head_time, layer_time
from dtk.costmodel.measurements.records import LayerPart
from dtk.costmodel.profiles import measured_part
from dtk.pipeline.iteration.run import TrainingRun

__all__ = ["measured_update_s", "part_times"]


def part_times(run: TrainingRun) -> tuple[PartTime, PartTime, PartTime]:
    """Return the times of a layer, the embedding and the head: as measured, where they were."""
    arguments = (run.shape, run.settings, run.roofline, run.communication)
    layer, embedding, head = layer_time(*arguments), embedding_time(*arguments), head_time(*arguments)
    if run.profile is None:
        return layer, embedding, head

    def measured(part: LayerPart, roofline: PartTime) -> PartTime:
        if run.profile is None or part not in run.profile.parts:
            return roofline
        return measured_part(run.profile, part, run.settings.micro_batch, roofline)

    return measured("layer", layer), measured("embedding", embedding), measured("head", head)


def measured_update_s(run: TrainingRun, num_layers: int, *, first: bool, last: bool) -> float | None:
    """Return the measured time of a stage's optimizer step, if it was measured of all its parts."""
    if run.profile is None:
        return None
    parts: tuple[tuple[LayerPart, int], ...] = (
        ("layer", num_layers),
        ("embedding", int(first)),
        ("head", int(last)),
    )
    time_s = 0.0
    for part, count in parts:
        if count:
            known = part in run.profile.parts
            update_s = run.profile.at(part, run.settings.micro_batch).update_s if known else None
            if update_s is None:
                return None
            time_s += count * update_s
    return time_s
