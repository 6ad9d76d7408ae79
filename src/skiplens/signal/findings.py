"""What may be wrong with signal and gradient: measurements that cannot be trusted, growth with depth, shut branches."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from skiplens.base.words import in_words, percent, times
from skiplens.edits.remedies import code_of
from skiplens.kernels.finite_width import advice
from skiplens.plots.section import Scale
from skiplens.readings.finding import Finding, Remedy, Rule, Severity, finding_with, listed, rule_words
from skiplens.signal.reading import Growth, Names, SignalReading, growth_of
from skiplens.signal.units import surprise

Numbers = tuple[float, float]  # measured, and what it was compared with
FRESH_STATISTICS = "fresh_statistics"
WORDS = rule_words(__file__)
LEAST_BLOCKS = 3  # fewer depths than this give no rate with an uncertainty
GROWTH_ALLOWED = 1.0  # c of α^m = c/L: the power of the signal then grows by less than e^c, however deep the network is
FLAT_ORDER = 3  # zero matrices in series from which on the Hessian of the loss vanishes
SURPRISE = 4.0  # standard deviations of a fair coin: one wrong alarm in 30,000 layers
CHANCE = 1e-3  # all units of a layer are shut with probability 2^−units; up to nine units this is no reason to worry
MOSTLY = 0.5


def judge_values(reading: SignalReading) -> Iterator[Finding]:
    """Values that are not finite."""
    if reading.broken:
        sentence = f"Values are NaN or infinite: {listed(reading.broken)}. No measurement can be trusted."
        yield _about(reading.broken, "not_finite", "critical", sentence)


def judge_dropout(reading: SignalReading) -> Iterator[Finding]:
    """Dropout that is switched on while the network is looked at."""
    if count := len(reading.dropout):
        places = f"{count} place{'s' * (count > 1)} ({listed(reading.dropout)})"
        sentence = f"Dropout is switched on in {places}: what was measured is one random thinning of the network."
        yield _about(reading.dropout, "dropout_on", "warning", sentence, Remedy("evaluation_mode"))


def judge_repeatability(reading: SignalReading) -> Iterator[Finding]:
    """Two calls that disagree although no dropout is on."""
    rounding = _resolution(reading) ** 0.5
    if reading.repeat_difference > rounding and not reading.dropout:
        yield Finding(
            rule="not_repeatable",
            severity="warning",
            sentence=f"Two calls with the same inputs differ by {in_words(reading.repeat_difference, 2)} of the "
            "largest output: the network draws at random, or changes when it is called.",
            number=reading.repeat_difference,
            threshold=rounding,
            source="half of the digits of the dtype; sums in another order differ by less",
            change="Switch off stochastic depth, random augmentation and state that a forward pass updates "
            "(model.eval()), or hand in a model without them."
            if reading.training
            else "It is in evaluation mode already: hand in its random numbers as an input, or fix what it draws.",
            code="model.eval()" if reading.training else "",
            remedy=Remedy("evaluation_mode") if reading.training else None,
        )


def judge_statistics(reading: SignalReading) -> Iterator[Finding]:
    """Batch norms that do not normalise, because no batch has updated their statistics."""
    if count := len(reading.fresh_norms):
        sentence = (
            f"{count} batch norm{'s are' if count > 1 else ' is'} in evaluation mode with statistics that no batch has "
            "updated: nothing is normalised in what was measured."
        )
        remedy = Remedy("training_mode", {"modules": reading.fresh_norms})
        yield _about(reading.fresh_norms, FRESH_STATISTICS, "note", sentence, remedy)


def _about(names: Names, rule: str, severity: Severity, sentence: str, remedy: Remedy | None = None) -> Finding:
    """A finding about things of which there should be none."""
    mended = {} if remedy is None else {"remedy": remedy, "code": code_of(remedy)}
    return finding_with(WORDS, rule, severity, sentence, (float(len(names)), 0.0), where=names, **mended)


def judge_signal(reading: SignalReading) -> Iterator[Finding]:
    """The signal on its way forward."""
    growth = gentler(reading, reading.signal_growth, growth_of(reading.signal))
    yield from _judged(reading, growth, "signal", allowed_growth(reading.longest))


def judge_gradient(reading: SignalReading) -> Iterator[Finding]:
    """The gradient on its way back, where the signal itself behaves.

    Batch norm and layer norm multiply the gradient by more than they multiply the signal (π/(π−1) for a ReLU), so
    branches that hold one are allowed all that the dtype can resolve.
    """
    if list(judge_signal(reading)):
        return
    growth = gentler(reading, reading.gradient_growth, growth_of(reading.gradient[reading.cut :].flip(0)))
    yield from _judged(reading, growth, "gradient", allowed_gradient(reading))


def gentler(reading: SignalReading, blocks: Growth, stream: Growth) -> Growth:
    """The growth by blocks alone, or that of the whole stream where layers between the blocks undo some of it."""
    in_one_row = reading.longest == reading.depth
    return stream if in_one_row and abs(stream.surely) < abs(blocks.surely) else blocks


def allowed_growth(depth: int) -> float:
    """The growth of power over `depth` blocks that is no cause of worry: e^c·(L + 1)."""
    return math.exp(GROWTH_ALLOWED) * (depth + 1)


def allowed_gradient(reading: SignalReading) -> float:
    """The growth of the gradient's power over all blocks that is no cause of worry."""
    normalised = any(reading.normalised) and not reading.fresh_norms
    return _resolution(reading) ** -2 if normalised else allowed_growth(reading.longest)


def growth_scale(what: str, growth: Growth, over: tuple[int, str], log_allowed: float, why: str) -> Scale:
    """The factor by which `what` surely changes over so many blocks or layers, where its power may by e^log_allowed."""
    log_factor = over[0] * growth.surely
    factor = math.exp(min(700.0, log_factor))
    threshold = math.exp(math.copysign(log_allowed / 2, log_factor or growth.rate))
    label, shown = f"is how much {what} changes over {over[0]} {over[1]}", times(growth.over(over[0]))
    return Scale(label, factor, 1.0, threshold, why, times, shown=shown)


def _judged(reading: SignalReading, growth: Growth, what: str, allowed: float) -> Iterator[Finding]:
    depth, surely = reading.longest, growth.surely
    log_power = 2 * depth * abs(surely)
    if depth < LEAST_BLOCKS or log_power <= math.log(allowed):
        return
    grows = surely > 0
    remedy = _scaled_branches(reading) if grows else None
    severity: Severity = "critical" if log_power > -math.log(_resolution(reading)) else "warning"
    verb, way = ("grows" if growth.rate > 0 else "fades"), ("" if what == "signal" else " on its way back")
    sentence = (
        f"The {what} {verb} exponentially with depth{way}: {times(growth.over(depth))} over "
        f"{'all ' if depth == reading.depth else 'the longest row of '}{depth} blocks, by a factor {growth.words} at "
        "each."
    )
    severity = "note" if reading.fresh_norms else severity  # training would normalise what is measured here
    numbers = growth.over(depth), math.exp(math.copysign(math.log(allowed) / 2, surely))
    words = (WORDS["growth"]["source"], _change(reading, grows), code_of(remedy) if remedy else "")
    yield Finding(f"{what}_growth", severity, sentence, *numbers, *words, reading.depths[1:], remedy)


def _change(reading: SignalReading, grows: bool) -> str:
    """What helps against a signal that grows, or fades."""
    if reading.fresh_norms:
        return (
            "Look at the network in training mode, or after its first steps: its batch norms use statistics that no "
            "batch has updated yet, so they do not normalise."
        )
    if not grows:
        return (
            "Let the shortcuts pass the signal on unchanged (identity, or a pool with singular values 1), and do not "
            "scale or normalise it after the join."
        )
    matrices = max(1, int(reading.branch_depths.double().median()))
    scale = advice.branch_scale(reading.depth, matrices, GROWTH_ALLOWED).branch_scale
    return (
        f"Scale the branches so that each adds 1/L = 1/{reading.depth} of the power: α = L^(−1/m) = {in_words(scale)} "
        f"for the variance of each of the m = {matrices} matrices, or the factors below for the last layer of each "
        "branch."
    )


def _scaled_branches(reading: SignalReading) -> Remedy | None:
    """Factors of each branch's last layer that let the power grow by 1 + c/L at each join."""
    factors: dict[str, float] = {}
    for index, outermost in enumerate(reading.outermost):
        factor = branch_factor(reading, index)
        if outermost and factor < 1:
            factors |= {name: float(f"{factor:.4g}") for name in reading.output_parameters[index]}
    return Remedy("scale_parameters", {"factors": factors}) if factors and not reading.fresh_norms else None


def branch_factor(reading: SignalReading, index: int) -> float:
    """The factor f of a branch with (fr)² + 2fρr = c/L, r its size over the shortcut's and ρ their cosine.

    A normalised branch keeps its size when the signal before it shrinks, so its r is taken at the signal's start.
    """
    shortcut = float(reading.signal[0].mean()) if reading.normalised[index] else float(reading.shortcut_norms[index])
    r, rho = float(reading.branch_norms[index]) / shortcut, float(reading.alignments[index])
    if not r > 0:
        return 1.0
    return (math.sqrt(rho**2 + GROWTH_ALLOWED / reading.depth) - rho) / r


def judge_flat(reading: SignalReading) -> Iterator[Finding]:
    """Branches with three or more zero matrices in series."""
    orders = reading.zero_factors.tolist()
    flat = [index for index, order in enumerate(orders) if order >= FLAT_ORDER]
    if not flat:
        return
    most = max(orders)
    sentence = (
        f"{_counted(reading, flat, 'start')} at a flat point, with {most} zero factors in series: all derivatives of "
        f"the loss up to order {most - 1} vanish there (block {listed(_names(reading, flat))})."
    )
    yield _drawn_anew(reading, flat, "flat_branches", "critical", sentence, (float(most), float(FLAT_ORDER)))


def judge_dead(reading: SignalReading) -> Iterator[Finding]:
    """Branches none of whose weights gets a gradient, while the output does depend on its join."""
    dead, floor = dead_branches(reading)
    if not dead:
        return
    shares, widths = reading.dead_units[dead].tolist(), reading.dead_widths[dead].tolist()
    # A layer of few units may be shut as a whole by chance.
    by_chance = all(share == 1 and 0.5**width > CHANCE for share, width in zip(shares, widths, strict=True))
    severity: Severity = "note" if reading.fresh_norms or by_chance else "critical"
    counted, largest = _counted(reading, dead, "get"), float(reading.branch_gradients[dead].max())
    sentence = f"{counted} no gradient and cannot learn (block {listed(_names(reading, dead))})."
    yield _drawn_anew(reading, dead, "dead_branches", severity, sentence, (largest, floor))


def dead_branches(reading: SignalReading) -> tuple[list[int], float]:
    """Branches without a gradient, and the size under which a gradient counts as none; flat ones are told apart."""
    arrived = float(reading.gradient[-1].max()) if len(reading.gradient) else 0.0
    sizes = reading.branch_gradients
    if reading.broken or not arrived > 0 or not bool((sizes > 0).any()):
        return [], 0.0
    outer = torch.tensor(reading.outermost).long()
    places = (outer.cumsum(0) + 1 - outer).clamp_max(len(reading.gradient) - 1)  # of the outermost joins around them
    after = reading.gradient.double().nan_to_num().max(1).values[places]
    floors = torch.minimum(sizes.nan_to_num().max(), after) * _resolution(reading)
    chosen = (sizes <= floors) & (reading.zero_factors < FLAT_ORDER)
    dead = [index for index in _indices(chosen) if reading.matrices[index]]
    return dead, float(floors[dead].max()) if dead else 0.0


def judge_units(reading: SignalReading) -> Iterator[Finding]:
    """Layers of ReLUs of which far more than half are shut on all samples, in branches not told of already."""
    told = {*dead_branches(reading)[0], *_indices(reading.zero_factors >= FLAT_ORDER)}
    shares, widths = reading.dead_units.tolist(), reading.dead_widths.tolist()
    units = enumerate(zip(shares, widths, strict=True))
    shut = [i for i, (share, width) in units if i not in told and width and surprise(share, width) > SURPRISE]
    if not shut:
        return
    worst = max(shut, key=lambda index: shares[index])
    others = _names(reading, [index for index in shut if index != worst])
    also = f", and most of those in {listed(others)}" if others else ""
    sentence = (
        f"{percent(shares[worst])} of the {widths[worst]} ReLUs of a layer in block {reading.block_names[worst]} are "
        f"zero on all {reading.samples} samples{also}."
    )
    numbers = (shares[worst], MOSTLY + SURPRISE / 2 / widths[worst] ** 0.5)
    yield _drawn_anew(reading, shut, "dead_units", "note" if reading.fresh_norms else "warning", sentence, numbers)


def judge_saturation(reading: SignalReading) -> Iterator[Finding]:
    """Layers of tanh or sigmoid of which most have no slope on any sample."""
    flat = _indices(reading.saturated_units > MOSTLY)
    if not flat:
        return
    share = float(reading.saturated_units[flat].max())
    sentence = (
        f"Up to {percent(share)} of the tanh or sigmoid units of a layer are saturated on all samples in "
        f"{listed(_names(reading, flat))}."
    )
    yield _drawn_anew(reading, flat, "saturated_units", "warning", sentence, (share, MOSTLY))


def _drawn_anew(
    reading: SignalReading, blocks: Sequence[int], rule: str, severity: Severity, sentence: str, numbers: Numbers
) -> Finding:
    """A finding about some branches, which are drawn anew to mend it; their last layers start at zero."""
    ends = {name for index in blocks for name in reading.output_parameters[index]}

    def collected(names: Sequence[Names]) -> Names:
        return tuple(dict.fromkeys(name for index in blocks for name in names[index] if name not in ends))

    zeros = (*collected(reading.shifts), *sorted(ends))
    parameters = {"drawn": collected(reading.matrices), "ones": collected(reading.scales), "zeros": zeros, "seed": 0}
    remedy = Remedy("redraw_parameters", parameters)
    mended: dict[str, Any] = {"where": _names(reading, blocks), "remedy": remedy, "code": code_of(remedy)}
    return finding_with(WORDS, rule, severity, sentence, numbers, **mended)


def _names(reading: SignalReading, blocks: Sequence[int]) -> Names:
    return tuple(reading.block_names[index] for index in blocks)


def _indices(chosen: torch.Tensor) -> list[int]:
    return [int(index) for index in chosen.nonzero().flatten()]


def _counted(reading: SignalReading, blocks: Sequence[int], verb: str) -> str:
    return f"{len(blocks)} of {len(reading.block_names)} branches {verb}{'s' * (len(blocks) == 1)}"


def _resolution(reading: SignalReading) -> float:
    kind = getattr(torch, reading.precision)
    return torch.finfo(kind).eps if kind.is_floating_point else 0.0


_JUDGES = {"not_finite": judge_values, "dropout_on": judge_dropout, "not_repeatable": judge_repeatability}
_JUDGES |= {FRESH_STATISTICS: judge_statistics, "signal_growth": judge_signal, "gradient_growth": judge_gradient}
_JUDGES |= {"flat_branches": judge_flat, "dead_branches": judge_dead}
_JUDGES |= {"dead_units": judge_units, "saturated_units": judge_saturation}
RULES = tuple(Rule(name, (SignalReading,), judge) for name, judge in _JUDGES.items())
