"""How many steps the runs of a race can have in the time that is left."""

from dataclasses import dataclass

FEWEST_STEPS, MOST_STEPS = 15, 300


@dataclass(frozen=True)
class Plan:
    """How many of the changes are raced and for how many steps; `reason` says why the others are not."""

    changes: int
    steps: int
    reason: str = ""


def plan(changes: int, runs: int, step_seconds: float, seconds: float, steps: int | None = None) -> Plan:
    """As many changes as possible, the first ones first, with at least 15 steps; then as many steps as possible.

    Args:
        changes: How many changes wait; beside them runs the network as it is.
        runs: Runs of each of them.
        step_seconds: Time of a step.
        seconds: Time that is left.
        steps: Steps that were asked for; the time is then not looked at.
    """
    if steps is not None:
        return Plan(changes, steps)
    for raced in range(changes, 0, -1):
        affordable = int(seconds / (step_seconds * runs * (raced + 1)))
        if affordable >= FEWEST_STEPS:
            return Plan(
                raced,
                min(affordable, MOST_STEPS),
                "" if raced == changes else _reason(changes, runs, step_seconds, seconds),
            )
    return Plan(0, 0, _reason(changes, runs, step_seconds, seconds))


def _reason(changes: int, runs: int, step_seconds: float, seconds: float) -> str:
    needed = FEWEST_STEPS * runs * (changes + 1) * step_seconds
    return (
        f"There was no time for a race: a step takes {step_seconds:.2g} s and {runs} runs of {FEWEST_STEPS} steps for "
        f"each of {changes + 1} networks {needed:.0f} s, but {max(0.0, seconds):.0f} s were left. Give more seconds."
    )
