"""Where the ways to two activations part."""

from collections.abc import Iterable

from skiplens.residual.flow import NOWHERE, DataFlow, members, union


def find_fork(flow: DataFlow, end: int, others: Iterable[int]) -> int | None:
    """The floating activation from which both `end` and `others` are computed and where the ways to them part.

    It is `end` itself when the others are computed from it. Else it is the activation where the part of the graph that
    only `end` needs takes its input; of several such activations the one that the others are computed from, or the
    nearest one that all ways to them lead through. None when the two have no floating activation in common.
    """
    shared = flow.above[end] & union(flow.above[other] for other in others)
    if shared >> end & 1:
        return end
    alone = flow.above[end] & ~shared
    doors = {source for number in members(alone) for source in flow.sources[number] if shared >> source & 1}
    candidates = {_floating_at_or_above(flow, door) for door in doors} - {NOWHERE}
    if not candidates:
        return None
    first = min(candidates)
    if all(flow.above[candidate] >> first & 1 for candidate in candidates):
        return first
    meeting = _floating_at_or_above(flow, flow.common_dominator(candidates))
    return meeting if meeting != NOWHERE else max(candidates)


def _floating_at_or_above(flow: DataFlow, number: int) -> int:
    while number != NOWHERE and not flow.is_floating(number):
        number = flow.dominator[number]
    return number
