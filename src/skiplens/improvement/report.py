"""An improvement on the page: before and after, the race with its spread, and what was tried."""

import math
from itertools import chain, repeat

from torch import Tensor

from skiplens.base.words import in_words, percent
from skiplens.improvement.race import race_figure
from skiplens.improvement.reading import Improvement
from skiplens.plots.figure import Figure, drawn
from skiplens.plots.network_drawing import drawing_from, side_by_side
from skiplens.plots.section import ReadingView, Section, provenance_of
from skiplens.trainability.reading import called


def race_curves(reading: Improvement) -> Figure | None:
    """The loss along training of the network as it was and of the changed one, over all seeds."""
    return None if reading.race is None else race_figure(reading.race, guess=reading.guess)


FIGURES = (race_curves,)
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth")


def improvement_section(reading: Improvement) -> Section:
    """The search and the race in words and numbers."""
    several = len(reading.changes) > 1  # the verdict names them, in this order
    because = tuple(
        f"Why the {place}, with {percent(share)} of the gain: {reason}." if several else f"Why: {reason}."
        for place, reason, share in zip(chain(PLACES, repeat("next")), reading.reasons, reading.shares, strict=False)
    )
    seen = tuple(map(drawing_from, reading.drawings))
    before, after = side_by_side(*seen) if len(seen) > 1 else (next(iter(seen), None), None)
    return Section(
        anchor="improvement",
        title="Improvement",
        sentence=reading.sentence,
        facts=_facts(reading),
        rows=reading.rows(),
        notes=because,
        figures=drawn(reading, FIGURES),
        drawing=before,
        after=after,
        code=reading.code,
        provenance=provenance_of(reading),
    )


def _facts(reading: Improvement) -> tuple[tuple[str, str], ...]:
    trainings = f"{reading.steps} steps of {called(reading.optimizer)}"
    facts = [("gradients computed", f"{reading.cost:,}"), ("trainings", trainings)]
    if reading.race is not None:
        before, after = map(_median, reading.race.ends)
        facts += [
            ("loss at the end, as it was", before),
            ("loss at the end, changed", after),
            ("rates", "{} before, {} after".format(*(in_words(rate, 2) for rate in reading.rates))),
            ("one-sided paired t-test of the logarithms", f"p = {in_words(reading.p, 2)}"),
        ]
    return tuple(facts)


def _median(finals: Tensor) -> str:
    middle = float(finals.median())
    return f"{in_words(middle) if math.isfinite(middle) else 'diverged'} (median of {len(finals)} seeds)"


VIEW = ReadingView(Improvement, section=improvement_section, figures=FIGURES)
