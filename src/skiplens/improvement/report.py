"""An improvement on the page: before and after, the race with its spread, and what was tried."""

from torch import Tensor

from skiplens.improvement.race import race_figure
from skiplens.improvement.reading import Improvement
from skiplens.plots.figure import Bars, Figure, drawn, numbers
from skiplens.plots.section import ReadingView, Section, number_in_words, provenance_of
from skiplens.readings.finding import Finding


def race_curves(reading: Improvement) -> Figure | None:
    """The loss along training of the network as it was and of the changed one, over all seeds."""
    return None if reading.race is None else race_figure(reading.race, guess=reading.guess)


def gains_of_changes(reading: Improvement) -> Figure | None:
    """How much each change helps by itself."""
    if len(reading.changes) < 2:
        return None
    return Figure(
        name="gains_of_changes",
        title="What each change is worth alone",
        caption="How many times lower a short training in small ends with that change alone.",
        x_label="change",
        y_label="loss of a pilot before / after",
        marks=(Bars(reading.changes, numbers(reading.gains.exp())),),
    )


FIGURES = (race_curves, gains_of_changes)


def improvement_section(reading: Improvement) -> Section:
    """The search and the race in words and numbers."""
    pairs = zip(reading.changes, reading.reasons, strict=True)
    because = tuple(f"{change[:1].upper()}{change[1:]}, because {reason}." for change, reason in pairs)
    left_out = tuple(f"Not tried: {name} ({reason})." for name, reason in reading.left_out.items())
    return Section(
        anchor="improvement",
        title="Improvement",
        sentence=reading.sentence,
        facts=_facts(reading),
        rows=reading.rows(),
        notes=(*because, *left_out),
        figures=drawn(reading, FIGURES),
        provenance=provenance_of(reading),
    )


def findings_of(reading: Improvement) -> tuple[Finding, ...]:
    """The change as a finding, with its code to paste; none where nothing was proven better."""
    if not reading.is_proven:
        return ()
    words = "; ".join(reading.changes)
    return (
        Finding(
            rule="improvement",
            severity="note",
            sentence=reading.sentence,
            number=reading.gain,
            threshold=1.0,
            source="how many times lower the loss ends in the race, in the geometric mean over seeds",
            change=f"{words[:1].upper()}{words[1:]}.",
            code=reading.code,
        ),
    )


def _facts(reading: Improvement) -> tuple[tuple[str, str], ...]:
    facts = [
        ("gradients computed", f"{reading.cost:,}"),
        ("trainings", f"{reading.steps} steps of {reading.optimizer}"),
    ]
    if reading.race is not None:
        facts += [
            *zip(
                ("loss at the end, as it was", "loss at the end, changed"), map(_median, reading.race.ends), strict=True
            ),
            ("rates", "{:.2g} before, {:.2g} after".format(*reading.rates)),
            ("one-sided paired t-test of the logarithms", f"p = {reading.p:.2g}"),
        ]
    return tuple(facts)


def _median(finals: Tensor) -> str:
    return f"{number_in_words(float(finals.median()))} (median of {len(finals)} seeds)"


VIEW = ReadingView(Improvement, section=improvement_section, figures=FIGURES)
