"""A Hessian that is ill conditioned beyond doubt."""

from collections.abc import Iterator

from skiplens.findings.finding import Finding
from skiplens.findings.rule import Rule
from skiplens.readings import HessianSpectrum

MANY_STEPS = 1e4
"""Steps of gradient descent for the slow tenth of all directions that count as many."""


def judge_condition(reading: HessianSpectrum) -> Iterator[Finding]:
    """How much slower the slowest tenth of all directions is than the fastest."""
    surely, most = reading.condition_interval[0], reading.largest_absolute
    if not surely > MANY_STEPS:
        return
    yield Finding(
        rule="hessian_condition",
        severity="note",
        sentence=f"The loss is ill conditioned here: its steepest direction is {reading.condition_number:.2g} times as "
        f"curved as the flattest tenth of all directions (at least {surely:.2g} with 95 % confidence).",
        number=reading.condition_number,
        threshold=MANY_STEPS,
        source="|λ|max over the 10 % quantile of |λ| ('Demystifying ResNet', figure 4): plain networks pass 10⁴ at "
        "eight layers, shortcuts of depth two stay near that of the data at any depth",
        change=f"Steps above 2/|λ|max = {2 / most:.2g} diverge, and at smaller ones flat directions hardly move: let "
        "shortcuts span two weight layers, start branches near zero, standardise the inputs, or use an optimiser that "
        "rescales directions.",
    )


RULES = (Rule("hessian_condition", (HessianSpectrum,), judge_condition),)
