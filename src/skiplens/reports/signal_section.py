"""Signal, gradient and branches told in words."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from skiplens.figures import figures_of
from skiplens.readings import SignalReading
from skiplens.readings.growth import Growth
from skiplens.reports.section import Section, provenance_of


def signal_section(reading: SignalReading) -> Section:
    """How signal and gradient fare."""
    return Section(
        anchor=reading.kind,
        title="Signal and gradient",
        sentence=signal_sentence(reading),
        facts=_facts(reading),
        rows=_rows(reading),
        notes=reading.notes,
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def signal_sentence(reading: SignalReading) -> str:
    """Both in one sentence."""
    if not reading.depth:
        return "Signal and gradient were not followed: there is no residual join."
    if reading.broken:
        return f"The signal cannot be followed: {reading.broken[0]} is not finite."
    signal, gradient = _change(reading.signal), _change(reading.gradient.flip(0))
    return (
        f"Over {reading.depth} block{'s' * (reading.depth > 1)} the signal {signal} and the gradient {gradient} "
        "on its way back."
    )


def _change(values: torch.Tensor) -> str:
    factor = float((values[-1] / values[0]).log().mean().exp())
    if not math.isfinite(factor):
        return "vanishes"
    if 0.8 < factor < 1.25:
        return "keeps its size"
    return f"grows {factor:.3g}-fold" if factor > 1 else f"shrinks {1 / factor:.3g}-fold"


def _facts(reading: SignalReading) -> tuple[tuple[str, str], ...]:
    return (
        ("samples", str(reading.samples)),
        ("outermost blocks", str(reading.depth)),
        ("signal, factor per block", _per_block(reading.signal_growth)),
        ("gradient, factor per block", _per_block(reading.gradient_growth)),
        ("branch over shortcut", _range(reading.branch_ratios)),
        ("batch-norm scales", _range(reading.norm_scales)),
        ("weight norms of branches", _range(reading.weight_norms)),
        ("dropout switched on", f"{len(reading.dropout)} places" if reading.dropout else "nowhere"),
        ("two calls differ by", f"{reading.repeat_difference:.3g}" if reading.repeat_difference else "nothing"),
        ("values that are not finite", ", ".join(reading.broken[:3]) or "none"),
    )


def _per_block(growth: Growth) -> str:
    if math.isnan(growth.rate):
        return "not measured"
    return f"{math.exp(growth.rate):.3g} (95 %: {math.exp(growth.low):.3g} to {math.exp(growth.high):.3g})"


def _range(values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    return f"{float(known.min()):.3g} to {float(known.max()):.3g}" if len(known) else "none"


def _rows(reading: SignalReading) -> tuple[Mapping[str, Any], ...]:
    """One row a block."""
    columns = {
        "branch / shortcut": reading.branch_ratios,
        "cosine": reading.alignments,
        "gradient of the branch": reading.branch_gradients,
        "weight norm": reading.weight_norms,
        "batch-norm scale": reading.norm_scales,
        "dead units": reading.dead_units,
        "zero factors": reading.zero_factors,
    }
    shown = {name: values for name, values in columns.items() if not bool(values.isnan().all())}
    return tuple(
        {"block": block, **{name: _word(values[index]) for name, values in shown.items()}}
        for index, block in enumerate(reading.block_names)
    )


def _word(value: torch.Tensor) -> str:
    return "–" if bool(value.isnan()) else f"{float(value):.3g}"
