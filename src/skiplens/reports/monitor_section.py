"""What a monitor saw, told in words."""

from skiplens.figures import figures_of
from skiplens.readings.monitor import MonitorReading
from skiplens.reports.section import Section, number_in_words, provenance_of

_TOLD = {
    "mean_depth": "mean depth",
    "weight_norm": "norm of the weights",
    "largest_eigenvalue": "largest eigenvalue",
    "smallest_eigenvalue": "smallest eigenvalue",
    "kernel_drift": "drift of the tangent kernel",
    "kernel_alignment": "alignment with the first tangent kernel",
}
"""The numbers that are told, by what a person calls them."""


def monitor_section(reading: MonitorReading) -> Section:
    """What changed from the first look to the last, and what looking cost."""
    changes = tuple((label, _change(reading, name)) for name, label in _TOLD.items() if name in reading.measured)
    costs = (
        ("looks", str(reading.looks)),
        ("cost of looking", f"{reading.own_seconds:.2g} s beside {reading.run_seconds:.3g} s of the run"),
    )
    missing = tuple(f"{name} was left out: {reason}" for name, reason in reading.left_out.items())
    return Section(
        anchor=reading.kind,
        title="While training",
        sentence=monitor_sentence(reading),
        facts=(*changes, *costs),
        notes=(*reading.notes, *missing, *reading.budget_sentences),
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def monitor_sentence(reading: MonitorReading) -> str:
    """The run in one sentence."""
    if not reading.looks:
        return "The network was not looked at."
    first, last = int(reading.steps[0]), int(reading.steps[-1])
    seen = f"The network was looked at {reading.looks} times between {first:,} and {last:,} updates"
    if "mean_depth" not in reading.measured:
        return f"{seen}."
    depths = reading.seen("mean_depth")[1]
    before, after = float(depths[0]), float(depths[-1])
    if len(depths) == 1:
        return f"{seen}; its effective depth was seen once: {before:.2f} branches."
    word = "grew" if after > before else "fell"
    return f"{seen}; its effective depth {word} from {before:.2f} to {after:.2f} branches."


def _change(reading: MonitorReading, name: str) -> str:
    """The number at its first and at its last look."""
    values = reading.seen(name)[1]
    if len(values) == 1:
        return f"{number_in_words(float(values[0]))} (seen once)"
    return f"{number_in_words(float(values[0]))} → {number_in_words(float(values[-1]))}"
