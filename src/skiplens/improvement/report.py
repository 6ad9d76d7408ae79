"""An improvement on the page: before and after, the race with its spread, and what was tried."""

import torch
from torch import Tensor

from skiplens.improvement.reading import Improvement
from skiplens.plots.figure import Bars, Figure, Mark, Points, Reference, bundle, drawn, numbers
from skiplens.plots.section import ReadingView, Section, number_in_words, provenance_of
from skiplens.readings.finding import Finding

CLIPPED = 10.0  # losses above so many guesses are drawn at this height


def race_curves(reading: Improvement) -> Figure | None:
    """The loss along training of the network as it was and of the changed one, over all seeds."""
    if not reading.losses_before.numel():
        return None
    marks: list[Mark] = []
    sides = (
        ("as it was", reading.losses_before, reading.rates[0]),
        ("changed", reading.losses_after, reading.rates[1]),
    )
    top = CLIPPED * reading.guess if reading.guess > 0 else float("inf")
    for index, (name, losses, rate) in enumerate(sides):
        shown = losses.clamp(max=top)
        diverged = ~losses.isfinite().all(1)
        steps = torch.arange(1, losses.shape[1] + 1)
        marks += bundle(steps, shown, f"{name} (rate {rate:.2g})", index, logarithmic=True)
        if bool(diverged.any()):
            ends = losses[diverged].isfinite().sum(1)
            label = f"✕ {name}: diverged on {int(diverged.sum())} of {len(losses)} seeds"
            marks.append(Points(numbers(ends + 1), numbers(torch.full((len(ends),), top)), label))
    if reading.guess > 0:
        marks.append(Reference(reading.guess, "a guess"))
    return Figure(
        name="race_curves",
        title="Both networks, trained to the end",
        caption=f"Mean loss over {len(reading.losses_before)} seeds and, shaded, the range between them. Both see the "
        "same batches in the same order, each at the rate that suits it best; the drawing ends at ten guesses.",
        x_label="step",
        y_label="training loss",
        y_log=True,
        marks=tuple(marks),
    )


def gains_of_changes(reading: Improvement) -> Figure | None:
    """How much each change helps by itself."""
    if len(reading.changes) < 2:
        return None
    return Figure(
        name="gains_of_changes",
        title="What each change is worth alone",
        caption="How many times lower the expected loss is with that change alone, from a short training.",
        x_label="change",
        y_label="expected loss before / after",
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
    if reading.losses_before.numel():
        facts += [
            *zip(("loss at the end, as it was", "loss at the end, changed"), map(_median, reading.ends), strict=True),
            ("rates", "{:.2g} before, {:.2g} after".format(*reading.rates)),
            ("one-sided paired t-test of the logarithms", f"p = {reading.p:.2g}"),
        ]
    return tuple(facts)


def _median(finals: Tensor) -> str:
    return f"{number_in_words(float(finals.median()))} (median of {len(finals)} seeds)"


VIEW = ReadingView(Improvement, section=improvement_section, figures=FIGURES)
