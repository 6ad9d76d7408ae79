"""Signal and gradient on the page: figures by depth and by block, the section, and what models are compared by."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from skiplens.base.words import in_words, span, times
from skiplens.plots.figure import Bars, Figure, Line, Reference, in_order, numbers
from skiplens.plots.section import Curve, KeyNumber, Overlay, Quantity, ReadingView, Scale, Section
from skiplens.readings.finding import Finding
from skiplens.signal.findings import LEAST_BLOCKS, RULES, allowed_gradient, allowed_growth, growth_scale
from skiplens.signal.lens import NO_JOIN, SignalLens
from skiplens.signal.reading import Growth, SignalReading


def signal_by_depth(reading: SignalReading) -> Figure | None:
    """Size of the signal and of the gradient at each join, relative to where each of them starts."""
    if not reading.depths:
        return None
    depths = numbers(range(len(reading.depths)))
    marks: list[Line | Reference] = [Reference(1.0)]
    for name, values in (("signal", reading.signal), ("gradient", reading.gradient.flip(0))):
        start = values[0].mean()
        relative = (values / start if start > 0 else values).double()
        relative = relative if name == "signal" else relative.flip(0)
        marks.append(Line(depths, numbers(relative.mean(1)), name))
    caption = (
        "Mean size of the signal relative to the input of the first block, and of the gradient relative to the last "
        "join, where it starts its way back. Straight lines that rise or fall grow or fade exponentially."
    )
    words = ("signal_by_depth", "Signal and gradient by depth", caption, "after residual block", "relative size")
    return Figure(*words, tuple(marks), y_log=True, block_places=in_order(reading.depths)[1:])


def branch_against_shortcut(reading: SignalReading) -> Figure | None:
    """Size of what each branch adds, relative to its shortcut."""
    if not reading.block_names:
        return None
    caption = (
        "Root mean square of what the branch adds at its join, over that of the shortcut. With every branch at the "
        "dashed level, one over the root of the number of blocks, the power of the signal grows by less than e however "
        "deep the network is."
    )
    measured = Bars(reading.block_names, numbers(reading.branch_ratios), "measured")
    marks = (measured, Reference((1 / max(1, reading.depth)) ** 0.5, "1/√L"))
    words = ("branch_against_shortcut", "Branch against shortcut", caption)
    return _by_block(reading, *words, "branch / shortcut", marks)


def scales_by_block(reading: SignalReading) -> Figure | None:
    """The scale of each branch's last batch norm, where there are any."""
    if bool(torch.isnan(reading.norm_scales).all()):
        return None
    caption = (
        "Mean |γ| of the last batch norm of each branch. Only the ratios between blocks matter: multiplying all of "
        "them by one number changes no path."
    )
    bars = Bars(reading.block_names, numbers(reading.norm_scales))
    return _by_block(reading, "scales_by_block", "Batch-norm scales by block", caption, "mean |γ|", (bars,))


def shut_units_by_block(reading: SignalReading) -> Figure | None:
    """Share of dead and of saturated units, where any unit is."""
    groups = (("dead (ReLU)", reading.dead_units), ("saturated (tanh, sigmoid)", reading.saturated_units))
    shown = [(name, shares) for name, shares in groups if bool((shares > 0).any())]
    caption = "Share of the units of a layer of the branch that pass nothing on, or no gradient, on any sample."
    bars = tuple(Bars(reading.block_names, numbers(shares), name) for name, shares in shown)
    words = ("shut_units_by_block", "Units that are shut on all samples", caption, "share of units")
    return _by_block(reading, *words, bars) if shown else None


def _by_block(
    reading: SignalReading, name: str, title: str, caption: str, y_label: str, marks: tuple[Bars | Reference, ...]
) -> Figure:
    words = (name, title, caption, "residual block", y_label)
    return Figure(*words, marks, block_places=in_order(reading.block_names))


FIGURES = (signal_by_depth, branch_against_shortcut, scales_by_block, shut_units_by_block)


def signal_section(reading: SignalReading) -> Section:
    """How signal and gradient fare."""
    told: dict[str, Any] = {"facts": _facts(reading), "rows": _rows(reading), "notes": reading.notes}
    return Section.of(reading, "Signal and gradient", signal_sentence(reading), FIGURES, **told)


def signal_sentence(reading: SignalReading) -> str:
    """Both in one sentence."""
    if not reading.depth:
        why = "there is no residual join" if NO_JOIN in reading.notes else "its modules do not show its blocks"
        return f"Signal and gradient were not followed: {why}."
    if reading.broken:
        return f"The signal cannot be followed: {reading.broken[0]} is not finite."
    blocks = f"{reading.depth} block{'s' * (reading.depth > 1)}"
    gradient = f"{_change(reading.gradient[reading.cut :].flip(0))} on its way back"
    passed = reading.depth + 1 - reading.cut
    if reading.cut:
        gradient += f" through the last {passed}" if passed else ", which the model lets into none of them"
    gradient = gradient if reading.gradient.any() else "is zero at each"
    return f"Over {blocks} the signal {_change(reading.signal)} and the gradient {gradient}."


def _change(values: torch.Tensor) -> str:
    values = values[:, values[0] > 0]  # a loss may be flat for some samples, which then have no gradient anywhere
    factor = float((values[-1] / values[0]).log().mean().exp())
    if not factor or not math.isfinite(factor):  # the quotient of an underflow and a number, or of two
        return "vanishes"
    return "keeps its size" if 0.8 < factor < 1.25 else f"{'grows' if factor > 1 else 'shrinks'} {times(factor)}"


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
        ("two calls differ by", in_words(reading.repeat_difference) if reading.repeat_difference else "nothing"),
        ("values that are not finite", ", ".join(reading.broken[:3]) or "none"),
    )


def _per_block(growth: Growth) -> str:
    return "not measured" if math.isnan(growth.rate) else f"{growth.words}, with 95 % confidence"


def _range(values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    return span(float(known.min()), float(known.max())) if len(known) else "none"


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
    words = {name: ["–" if math.isnan(v) else in_words(v) for v in values.tolist()] for name, values in shown.items()}
    table = {"block": reading.block_names, **words}
    return tuple(dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))


def signal_scale(reading: SignalReading) -> Scale | None:
    """Whichever of signal and gradient changes more, measured by what its rule allows."""
    depth = reading.longest
    if depth < LEAST_BLOCKS or reading.broken:
        return None
    why = (
        "At ×1 every block passes on what it gets. The threshold is what branches of one size add up to, or, for a "
        "gradient through normalised branches, what the dtype can resolve. The mark stands at the end of a 95 % "
        "confidence interval nearest to no change."
    )
    allowed = {"the signal": allowed_growth(depth), "the gradient": allowed_gradient(reading)}
    growths = zip(allowed.items(), (reading.signal_growth, reading.gradient_growth), strict=True)
    scales = [growth_scale(what, growth, (depth, "blocks"), math.log(most), why) for (what, most), growth in growths]
    return max(scales, key=lambda scale: scale.place)


def signal_numbers(reading: SignalReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    if not reading.depth:
        return ()
    return (
        KeyNumber("signal, factor per block", math.exp(reading.signal_growth.rate), logarithmic=True),
        KeyNumber("gradient, factor per block", math.exp(reading.gradient_growth.rate), logarithmic=True),
        KeyNumber("branch over shortcut, median", float(reading.branch_ratios.median()), logarithmic=True),
    )


def _relative(values: Tensor) -> Curve | None:
    sizes = values.double().mean(1)
    return Curve(torch.arange(len(sizes)), sizes / sizes[0]) if len(sizes) else None


OVERLAYS = (
    Overlay(
        "signal_by_depth",
        "Signal by depth",
        "Size of the signal relative to the input of the first block.",
        ("outermost blocks passed", "relative size"),
        lambda reading: _relative(reading.signal),
    ),
    Overlay(
        "gradient_by_depth",
        "Gradient by depth",
        "Size of the gradient on its way back, relative to the last join.",
        ("outermost blocks passed on the way back", "relative size"),
        lambda reading: _relative(reading.gradient.flip(0)),
    ),
)


def _of_blocks(name: str, worst: Callable[[Sequence[float]], float]) -> Callable[..., float]:
    """The worst entry of a per-block field over the blocks that the finding speaks of."""

    def measure(finding: Finding, reading: Any) -> float:
        values = dict(zip(reading.block_names, getattr(reading, name).tolist(), strict=True))
        return float(worst([values[block] for block in finding.where if block in values] or [math.nan]))

    return measure


QUANTITIES: dict[str, Quantity] = {
    "signal_growth": Quantity(
        "growth of the signal over all blocks", lambda finding, reading: reading.signal_growth.over(reading.longest)
    ),
    "gradient_growth": Quantity(
        "growth of the gradient over all blocks", lambda finding, reading: reading.gradient_growth.over(reading.longest)
    ),
    "flat_branches": Quantity("zero factors in series", _of_blocks("zero_factors", max)),
    "dead_branches": Quantity("smallest gradient of these branches", _of_blocks("branch_gradients", min)),
    "dead_units": Quantity("largest share of dead units", _of_blocks("dead_units", max)),
    "saturated_units": Quantity("largest share of saturated units", _of_blocks("saturated_units", max)),
    "dropout_on": Quantity("places with dropout on", lambda _, reading: float(len(reading.dropout))),
    "not_repeatable": Quantity("difference of two calls", lambda _, reading: reading.repeat_difference),
    "fresh_statistics": Quantity("batch norms without statistics", lambda _, reading: float(len(reading.fresh_norms))),
}


VIEW = ReadingView(
    SignalReading, SignalLens, signal_section, FIGURES, RULES, signal_numbers, OVERLAYS, QUANTITIES, signal_scale
)
