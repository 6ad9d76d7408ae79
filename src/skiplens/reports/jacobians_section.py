"""The Jacobian spectrum told in words."""

import math
from collections.abc import Mapping
from typing import Any

from skiplens.figures import figures_of
from skiplens.readings import JacobianSpectrum, SpectrumStatistics
from skiplens.reports.section import Section, provenance_of

WEAK = 0.1
"""Directions that shrink below this count as weak."""


def jacobians_section(reading: JacobianSpectrum) -> Section:
    """Whether the layers keep the gradient alive."""
    return Section(
        anchor=reading.kind,
        title="Jacobians",
        sentence=jacobians_sentence(reading),
        facts=_facts(reading),
        rows=_rows(reading),
        notes=reading.notes,
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def jacobians_sentence(reading: JacobianSpectrum) -> str:
    """The spectrum in one sentence."""
    whole = _end_to_end(reading)
    if not reading.without_shortcut:
        return whole or "Singular values of parts of the network were measured."
    names = list(reading.without_shortcut)
    alone = sum(reading.share_below(WEAK, name, without_shortcut=True) for name in names) / len(names)
    kept = sum(reading.share_below(WEAK, name) for name in names) / len(names)
    return (
        f"Through the branches alone {alone:.0%} of the directions shrink to less than a tenth; with the shortcuts "
        f"it is {kept:.0%}. {whole}"
    ).strip()


def _end_to_end(reading: JacobianSpectrum) -> str:
    if "network" not in reading.singular_values:
        return ""
    numbers = reading.statistics("network")
    lost = f"; {numbers.near_zero:.0%} of the directions are lost" if numbers.near_zero > 0.005 else ""
    return f"From input to output singular values lie between {numbers.smallest:.2g} and {numbers.largest:.2g}{lost}."


def _facts(reading: JacobianSpectrum) -> tuple[tuple[str, str], ...]:
    joint = "of the whole batch" if reading.coupled else "of each sample"
    facts = [("samples", str(reading.samples)), ("Jacobians", joint)]
    if reading.readings > 1:
        facts.append(("readings averaged", str(reading.readings)))
    if "network" in reading.singular_values:
        numbers = reading.statistics("network")
        facts += [
            ("singular values of the network", f"{numbers.count:,}"),
            ("its largest singular value", f"{numbers.largest:.3g}"),
            ("its median singular value", f"{numbers.median:.3g}"),
            ("its condition number", _number(numbers.condition_number)),
            ("its log-volume (sum of ln σ)", f"{numbers.log_volume:.4g}"),
            ("directions it stretches", f"{numbers.above_one:.1%}"),
            ("directions it loses (below 1e-6)", f"{numbers.near_zero:.1%}"),
        ]
    return tuple(facts)


def _rows(reading: JacobianSpectrum) -> tuple[Mapping[str, Any], ...]:
    """One row for each block, or span of blocks."""
    return tuple(_row(reading, name) for name in reading.names if name != "network")


def _row(reading: JacobianSpectrum, name: str) -> Mapping[str, Any]:
    own = reading.statistics(name)
    alone = reading.statistics(name, without_shortcut=True) if name in reading.without_shortcut else None
    return {
        "block": name,
        "median": f"{own.median:.3g}",
        "branch alone": _branch(alone),
        "below 0.1": f"{reading.share_below(WEAK, name):.0%}",
        "below 0.1, branch": "" if alone is None else f"{reading.share_below(WEAK, name, without_shortcut=True):.0%}",
        "above 1": f"{own.above_one:.0%}",
        "largest": f"{own.largest:.3g}",
        "lost, branch": _lost(alone, reading.method(name)),
        "found by": reading.method(name),
    }


def _branch(alone: SpectrumStatistics | None) -> str:
    return "" if alone is None else f"{alone.median:.3g}"


def _lost(numbers: SpectrumStatistics | None, method: str) -> str:
    """The share of lost directions; Lanczos smears them out and cannot tell."""
    if numbers is None:
        return ""
    return "not resolved" if method == "lanczos" else f"{numbers.near_zero:.0%}"


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:,.3g}" if value < 1e5 else f"{value:.2e}"
