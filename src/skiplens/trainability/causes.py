"""What limits a training: the most severe finding of the lenses that need no more than one gradient."""

from skiplens.readings.finding import Finding, by_severity
from skiplens.signal.layer_findings import layer_findings
from skiplens.signal.layers import LayerStates
from skiplens.task.findings import task_findings
from skiplens.task.reading import TaskReading
from skiplens.trainability.reading import TRAINS


def cause_of(word: str, task: TaskReading, states: LayerStates) -> Finding | None:
    """What stands in the way, or None where nothing does or nothing was found."""
    if word == TRAINS:
        return None
    found = by_severity([*layer_findings(states), *task_findings(task)])
    return next((finding for finding in found if finding.severity != "note"), None)
