"""The Hessian's spectrum told in words."""

import math
from collections.abc import Mapping
from typing import Any

from skiplens.figures import figures_of
from skiplens.readings import HessianSpectrum
from skiplens.reports.section import Section, number_in_words, provenance_of

_TELLING = 0.2
"""An interval of the index wider than this is told as not known."""


def curvature_section(reading: HessianSpectrum) -> Section:
    """How well conditioned the loss is, and how many directions lead down."""
    return Section(
        anchor=reading.kind,
        title="Curvature of the loss",
        sentence=curvature_sentence(reading),
        facts=_facts(reading),
        rows=_rows(reading),
        notes=reading.notes,
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def curvature_sentence(reading: HessianSpectrum) -> str:
    """The spectrum in one or two sentences."""
    if reading.largest_absolute == 0:
        return "The loss does not curve at all here: every eigenvalue is zero."
    return f"{_conditioning(reading)} {_descent(reading)}"


def _conditioning(reading: HessianSpectrum) -> str:
    low, high = reading.condition_interval
    meaning = "the steepest direction curves that many times more than the flattest tenth"
    if reading.method == "exact" and not _known(low, high):
        flat = "At least a tenth of all directions is flat to working precision"
        return f"{flat}; the condition number is above {number_in_words(low)}."
    if _known(low, high):
        return f"The loss has condition number {number_in_words(reading.condition_number)}: {meaning}."
    if math.isinf(high):
        return f"The loss has a condition number of at least {number_in_words(low)}: {meaning}."
    return f"The loss has a condition number between {number_in_words(low)} and {number_in_words(high)}: {meaning}."


def _descent(reading: HessianSpectrum) -> str:
    low, high = reading.index_interval
    if high - low > _TELLING:
        mass = _percent(reading.negative_mass, reading.negative_mass_error)
        return f"Of all its curvature {mass} is downward; most directions are too flat to tell up from down."
    if _known(low, high):
        return f"It curves down in {reading.index:.1%} of all directions."
    return f"It curves down in {low:.0%} to {high:.0%} of all directions."


def _facts(reading: HessianSpectrum) -> tuple[tuple[str, str], ...]:
    return (
        ("matrix", f"{reading.matrix_name} of {reading.parameters:,} parameters"),
        ("loss", f"{number_in_words(reading.loss)} over {reading.samples} samples"),
        ("length of the gradient", number_in_words(reading.gradient_norm)),
        ("largest eigenvalue", _with_residual(reading, -1)),
        ("smallest eigenvalue", _with_residual(reading, 0)),
        ("condition number (|λ|max over the 10 % quantile of |λ|)", _condition(reading)),
        ("index (share of directions that lead down)", _share(reading.index, reading.index_interval)),
        ("flat directions (|λ| at most a tenth of |λ|max)", _share(reading.flat_share, reading.flat_interval)),
        ("curvature that is downward", _percent(reading.negative_mass, reading.negative_mass_error)),
        ("trace", _with_error(reading.trace, reading.trace_error)),
        ("Frobenius norm", _with_error(reading.frobenius_norm, reading.frobenius_error)),
        ("largest step of gradient descent (2/λmax)", _largest_step(reading)),
    )


def _with_residual(reading: HessianSpectrum, place: int) -> str:
    value, residual = number_in_words(reading.largest if place else reading.smallest), _residual(reading, place)
    return f"{value} (an eigenvalue lies within {residual:.1g})" if residual else value


def _residual(reading: HessianSpectrum, place: int) -> float:
    """How far an eigenvalue may be from an extreme; 0 where it is exact but for rounding."""
    return float(reading.extreme_residuals[place]) if reading.method == "lanczos" else 0.0


def _condition(reading: HessianSpectrum) -> str:
    low, high = reading.condition_interval
    if _known(low, high):
        return number_in_words(reading.condition_number)
    if reading.method == "exact":
        return f"above {number_in_words(low)}"
    limit = "infinity" if math.isinf(high) else number_in_words(high)
    return f"{number_in_words(reading.condition_number)} (95 %: from {number_in_words(low)} to {limit})"


def _share(value: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{value:.1%}" if _known(low, high) else f"{value:.1%} (95 %: from {low:.1%} to {high:.1%})"


def _known(low: float, high: float) -> bool:
    """Whether an interval is so narrow that a person need not know of it."""
    return high - low <= 1e-3 * abs(low)


def _percent(value: float, error: float) -> str:
    return f"{value:.1%}" if error == 0 else f"{value:.1%} ± {error:.1%}"


def _with_error(value: float, error: float) -> str:
    return number_in_words(value) if error == 0 else f"{number_in_words(value)} ± {error:.2g}"


def _largest_step(reading: HessianSpectrum) -> str:
    return number_in_words(2 / reading.largest) if reading.largest > 0 else "any: no direction curves up"


def _rows(reading: HessianSpectrum) -> tuple[Mapping[str, Any], ...]:
    """One row a block, where blocks were looked at one by one."""
    return tuple(
        {
            "block": name,
            "parameters": f"{block.parameters:,}",
            "largest (an eigenvalue lies within)": _with_error(block.largest, _residual(block, -1)),
            "smallest (an eigenvalue lies within)": _with_error(block.smallest, _residual(block, 0)),
        }
        for name, block in reading.blocks.items()
    )
