"""Proves that a schedule can run and that it trains on every micro-batch once.

What is modelled: each rank does its actions one after another, in order. A forward waits for the forward of
the stage before, a backward for that of the stage after (the last stage's for its own forward), a weight
gradient for its input gradient. Between ranks

- without listed transfers, an output arrives as soon as it is computed, with unlimited buffers;
- with listed transfers, only through its send and receive. Under rendezvous each holds its rank until the
  partner has come to the same message, one operation at a time: what passes also runs where operations start
  in this order and wait later. Batches, in which several operations of a rank start together, could do with
  less; they are not modelled. Without rendezvous a send never waits.

Times are the simulator's concern. Not asked for either is what a single runtime wants beyond this, such as
ascending micro-batches on the last stage.
"""

from dtk.pipeline.schedule import Schedule
from dtk.pipeline.validate.execution import check_execution
from dtk.pipeline.validate.listing import check_order, read_listing
from dtk.pipeline.validate.parameters import check_parameters
from dtk.pipeline.validate.transfers import check_transfers, lists_transfers

__all__ = ["validate"]


def validate(
    schedule: Schedule,
    *,
    rendezvous: bool = True,
    resident_chunks: int | None = None,
    weight_grad_needs_parameters: bool = False,
) -> None:
    """Check a schedule, in time linear in its actions.

    Args:
        schedule: Compute actions, with or without what the lowering passes add. Positions in messages count
            from 0.
        rendezvous: Whether listed sends and receives wait for each other.
        resident_chunks: The most stages of a rank gathered at once; None for any number.
        weight_grad_needs_parameters: Whether a W, too, needs its stage gathered.

    Raises:
        InputError: If a compute action is missing, doubled, misplaced or on the wrong rank; ranks wait for
            each other; a transfer is missing, doubled, out of order or where none is needed; parameters are
            not there when used, or there after the end; or gradients are left unreduced.
    """
    listing = read_listing(schedule)
    check_order(listing)
    transfers = lists_transfers(schedule)
    if transfers:
        check_transfers(listing)
    check_execution(listing, transfers=transfers, rendezvous=rendezvous)
    check_parameters(
        schedule,
        resident_chunks=resident_chunks,
        weight_grad_needs_parameters=weight_grad_needs_parameters,
    )
