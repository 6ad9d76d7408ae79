"""THE list of lenses, in the order in which a report shows them, and what a page asks of their readings.

Adding a lens is adding a folder whose report has a `VIEW`, and a line here.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.base.words import percent
from skiplens.curvature import landscape_reading
from skiplens.curvature import report as curvature
from skiplens.graph.inputs import first_line
from skiplens.graph.lens import MORE_TIME, Lens
from skiplens.improvement import best_change
from skiplens.improvement import report as improvement
from skiplens.jacobians import report as jacobians
from skiplens.jacobians.hypotheses import model_check as hypotheses
from skiplens.paths import report as paths
from skiplens.plots.figure import Figure, drawn
from skiplens.plots.plotly_json import plotly_json
from skiplens.plots.section import KeyNumber, Overlay, Quantity, ReadingView, Scale, Section, provenance_of
from skiplens.readings.finding import Finding, Rule, by_severity, listed
from skiplens.readings.reading import Reading
from skiplens.report import verification_reading
from skiplens.report.during_training import along, depth_reading, page
from skiplens.signal import layer_report as layers
from skiplens.signal import report as signal
from skiplens.signal import structure
from skiplens.tangent import report as tangent
from skiplens.task import report as task
from skiplens.trainability import report as forecast
from skiplens.trainability.reading import LEARNT, Forecast
from skiplens.training import history

_LENSES = (forecast, structure, signal, layers, task, paths, curvature, jacobians, hypotheses, tangent)


def _forecast_scale(reading: Forecast) -> Scale | None:
    """The loss that is expected, against that of a guess."""
    share = reading.loss / reading.guess if reading.guess > 0 else math.nan
    label = f"of the loss of a guess is expected after {reading.steps} steps"
    why = "A loss of zero would be perfect, and a network whose loss stays above a quarter of a guess has not learned."
    return None if math.isnan(share) else Scale(label, share, 0.0, LEARNT, why, percent, logarithmic=False)


LENS_VIEWS: tuple[ReadingView, ...] = (
    replace(forecast.VIEW, scale=_forecast_scale),
    *(lens.VIEW for lens in _LENSES[1:]),
)

_OTHERS = (landscape_reading, history, along, depth_reading, page, verification_reading, improvement, best_change)
VIEWS: dict[type[Reading], ReadingView] = {
    view.reading: view for view in (*LENS_VIEWS, *(other.VIEW for other in _OTHERS))
}
"""How each kind of reading is shown, also those that `inspect` does not take."""

LENSES: dict[str, type[Lens]] = {view.lens.name: view.lens for view in LENS_VIEWS if view.lens is not None}

# Findings of one severity are reported in this order.
_JUDGED = (task, signal, layers, paths, jacobians, curvature, tangent, forecast)
RULES: tuple[Rule, ...] = tuple(rule for part in _JUDGED for rule in part.VIEW.rules)
JUDGED: dict[str, type[Reading]] = {
    view.lens.name: view.reading for view in (part.VIEW for part in _JUDGED[:-1]) if view.lens is not None
}
"""The lenses without which a network is not called healthy; the forecast speaks for itself."""
QUANTITIES: dict[str, Quantity] = {name: found for view in LENS_VIEWS for name, found in view.quantities.items()}
"""By the name of the rule."""


def choose(names: tuple[str, ...]) -> tuple[Lens, ...]:
    """The lenses called `names` with their default options; all for no names. Some always come."""
    for name in names:
        if name not in LENSES:
            raise InvalidInputError(f"There is no lens {name!r}. {did_you_mean(name, LENSES)}")
    always = {view.lens.name for view in (structure.VIEW, signal.VIEW, layers.VIEW) if view.lens is not None}
    wanted = always | set(names or LENSES)
    return tuple(lens() for name, lens in LENSES.items() if name in wanted)


def find(readings: Sequence[Reading], failed: Callable[[str, Exception], object] | None = None) -> tuple[Finding, ...]:
    """What all rules find in the readings of one model, most severe first.

    A rule that ends in an error is handed to `failed`, so that the others are still heard; without it the error is one.
    """
    found: list[Finding] = []
    for rule in RULES:
        try:
            found += rule(readings)
        except Exception as error:
            if failed is None:
                raise
            failed(rule.name, error)
    return by_severity(found)


def figures_of(reading: Reading) -> tuple[Figure, ...]:
    """The figures of `reading`, in order."""
    return drawn(reading, _view(reading).figures)


def section_of(reading: Reading) -> Section:
    """The section of `reading`, with its figures and its provenance."""
    view = VIEWS[type(reading)]
    assert view.section is not None, f"{type(reading).__name__} has no section"
    section = view.section(reading)
    question = section.question if view.lens is None else view.lens.question
    return replace(section, question=question, scale=view.scale(reading))


def severity_of(reading: Reading, findings: Sequence[Finding]) -> str:
    """That of the worst of `findings`, which come the worst first, that is one of the reading's own rules."""
    own = {rule.name for rule in _view(reading).rules}
    return next((finding.severity for finding in findings if finding.rule in own), "")


def has_section(reading: Reading) -> bool:
    """Whether it has a place of its own on the page; a kind that nobody knows has one that says so."""
    return type(reading) not in VIEWS or VIEWS[type(reading)].section is not None


def guarded_section(reading: Reading) -> Section:
    """The section of `reading`; where it cannot be written or drawn, one that says so, so that the others are."""
    try:
        section = section_of(reading)
        for figure in section.figures:
            json.dumps(plotly_json(figure), allow_nan=False)
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        words = f"This section could not be written ({said}) Its numbers are in readings.json. Please report it."
        return Section(reading.kind, reading.kind.capitalize(), words, provenance=provenance_of(reading))
    return section


def samples_of(reading: Reading) -> int | None:
    """With how many samples a reading was taken; None where that is not known."""
    known = getattr(reading, "samples", reading.provenance.settings.get("samples"))
    return known if isinstance(known, int) else None


def counted(reading: Reading) -> str:
    """The number of samples as a sentence; '' where that is not known."""
    count = samples_of(reading)
    return "" if count is None else f"Measured with {count} sample{'s' * (count != 1)}."


def spared(readings: Sequence[Reading]) -> str:
    """Which lenses took less because a pass through the model is costly, in their own words; '' where none did."""
    told: dict[str, list[str]] = {}
    for reading in readings:
        name = str(reading.provenance.settings.get("lens", reading.kind))
        for note in getattr(reading, "notes", ()):
            if note.startswith("A pass"):
                told.setdefault(note.replace(f" {MORE_TIME}", ""), []).append(name.replace("structure", "all lenses"))
    said = " ".join(f"{listed(tuple(names), most=9)}: {note}" for note, names in told.items())
    return said and f"{said} {MORE_TIME}"


def key_numbers(reading: Reading) -> tuple[KeyNumber, ...]:
    """The numbers of `reading` by which models are compared; none for kinds that are not compared."""
    return _view(reading).key_numbers(reading)


def overlays_of(kind: type[Reading]) -> tuple[Overlay, ...]:
    """The curves of such a reading that can be laid over those of other models."""
    return VIEWS[kind].overlays if kind in VIEWS else ()


def _view(reading: Reading) -> ReadingView:
    return VIEWS.get(type(reading), ReadingView(type(reading)))
