"""Branches that start at a flat point, get no gradient, or are mostly shut."""

from collections.abc import Iterator, Sequence

import torch

from skiplens.edits.remedies import code_of
from skiplens.readings.finding import Finding, Remedy, Rule, listed
from skiplens.signal.reading import SignalReading
from skiplens.signal.units import surprise

FLAT_ORDER = 3
"""Zero matrices in series from which on the Hessian of the loss vanishes."""

SURPRISE = 4.0
"""Standard deviations of a fair coin: one wrong alarm in 30,000 layers."""

CHANCE = 1e-3
"""All units of a layer are shut with probability 2^−units; up to nine units this is no reason to worry."""

MOSTLY = 0.5


def judge_flat(reading: SignalReading) -> Iterator[Finding]:
    """Branches with three or more zero matrices in series."""
    orders = reading.zero_factors.tolist()
    flat = [index for index, order in enumerate(orders) if order >= FLAT_ORDER]
    if not flat:
        return
    names, most = _names(reading, flat), max(orders)
    yield _finding(
        reading,
        flat,
        rule="flat_branches",
        severity="critical",
        sentence=f"{_counted(reading, flat, 'start')} at a flat point, with {most} zero factors in series: all "
        f"derivatives of the loss up to order {most - 1} vanish there (block {listed(names)}).",
        number=float(most),
        threshold=float(FLAT_ORDER),
        source="'Demystifying ResNet', theorem 2: with n ≥ 3 matrices at zero the gradient and the Hessian are zero",
        change="Leave at most the last layer of a branch at zero and draw the others; the block still starts as its "
        "shortcut, and its gradient no longer vanishes.",
    )


def judge_dead(reading: SignalReading) -> Iterator[Finding]:
    """Branches none of whose weights gets a gradient, while the output does depend on its join."""
    dead, floor = dead_branches(reading)
    if not dead:
        return
    yield _finding(
        reading,
        dead,
        rule="dead_branches",
        severity="note" if reading.fresh_norms or all(_by_chance(reading, index) for index in dead) else "critical",
        sentence=f"{_counted(reading, dead, 'get')} no gradient and cannot learn (block "
        f"{listed(_names(reading, dead))}).",
        number=float(reading.branch_gradients[dead].max()),
        threshold=floor,
        source="rounding of the dtype, relative to the branch with the largest gradient; an exact zero of two or more "
        "matrices in series is stationary ('Demystifying ResNet', theorem 2)",
        change="Draw the weights of these branches anew, set scales to one and shifts to zero, and start the last "
        "layer at zero, so that the block starts as its shortcut.",
    )


def dead_branches(reading: SignalReading) -> tuple[list[int], float]:
    """Branches without a gradient, and the size under which a gradient counts as none; flat ones are told apart."""
    arrived = float(reading.gradient[-1].max()) if len(reading.gradient) else 0.0
    sizes = reading.branch_gradients
    if reading.broken or not arrived > 0 or not bool((sizes > 0).any()):
        return [], 0.0
    floor = float(sizes.max()) * torch.finfo(getattr(torch, reading.precision)).eps
    chosen = (sizes <= floor) & (reading.zero_factors < FLAT_ORDER)
    return [index for index in _indices(chosen) if reading.matrices[index]], floor


def _by_chance(reading: SignalReading, index: int) -> bool:
    """Whether a branch is shut by a layer of so few units that all of them may be shut by chance."""
    return float(reading.dead_units[index]) == 1 and 0.5 ** int(reading.dead_widths[index]) > CHANCE


def judge_units(reading: SignalReading) -> Iterator[Finding]:
    """Layers of ReLUs of which far more than half are shut on all samples, in branches not told of already."""
    told = {*dead_branches(reading)[0], *_indices(reading.zero_factors >= FLAT_ORDER)}
    shares, widths = reading.dead_units.tolist(), reading.dead_widths.tolist()
    shut = [
        index
        for index, (share, width) in enumerate(zip(shares, widths, strict=True))
        if index not in told and width and surprise(share, width) > SURPRISE
    ]
    if not shut:
        return
    worst = max(shut, key=lambda index: shares[index])
    yield _finding(
        reading,
        shut,
        rule="dead_units",
        severity="note" if reading.fresh_norms else "warning",
        sentence=f"{shares[worst]:.0%} of the {widths[worst]} ReLUs of a layer in block {reading.block_names[worst]} "
        f"are zero on all {reading.samples} samples{_others(reading, shut, worst)}.",
        number=shares[worst],
        threshold=MOSTLY + SURPRISE / 2 / widths[worst] ** 0.5,
        source="gates of random networks are open with probability ½ ('Residual Tangent Kernels', theorem 3): even if "
        "all samples were alike, half of the units would be shut, give or take four standard deviations",
        change="Draw the weights of these branches anew, set their shifts to zero, or lower the learning rate that "
        "shut them.",
    )


def judge_saturation(reading: SignalReading) -> Iterator[Finding]:
    """Layers of tanh or sigmoid of which most have no slope on any sample."""
    flat = _indices(reading.saturated_units > MOSTLY)
    if not flat:
        return
    share = float(reading.saturated_units[flat].max())
    yield _finding(
        reading,
        flat,
        rule="saturated_units",
        severity="warning",
        sentence=f"Up to {share:.0%} of the tanh or sigmoid units of a layer are saturated on all samples in "
        f"{listed(_names(reading, flat))}.",
        number=share,
        threshold=MOSTLY,
        source="slope under 1 % of sup|φ′|; the Jacobian of a nonlinearity is diag φ′ ('On skip connections and "
        "normalisation layers in deep optimisation', proposition 4.2)",
        change="Draw the weights of these branches anew at the size of He, or normalise before the nonlinearity.",
    )


def _finding(reading: SignalReading, blocks: Sequence[int], **words: object) -> Finding:
    remedy = _redrawn(reading, blocks)
    return Finding(**words, code=code_of(remedy), where=_names(reading, blocks), remedy=remedy)  # type: ignore[arg-type]  # the fields by name


def _redrawn(reading: SignalReading, blocks: Sequence[int]) -> Remedy:
    ends = {name for index in blocks for name in reading.output_parameters[index]}
    drawn = _collected(reading.matrices, blocks, ends)
    scales, shifts = (_collected(names, blocks, ends) for names in (reading.scales, reading.shifts))
    zeros = (*shifts, *sorted(ends))
    return Remedy("redraw_parameters", {"drawn": drawn, "ones": scales, "zeros": zeros, "seed": 0})


def _collected(names: Sequence[tuple[str, ...]], blocks: Sequence[int], without: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for index in blocks for name in names[index] if name not in without))


def _names(reading: SignalReading, blocks: Sequence[int]) -> tuple[str, ...]:
    return tuple(reading.block_names[index] for index in blocks)


def _indices(chosen: torch.Tensor) -> list[int]:
    return [int(index) for index in chosen.nonzero().flatten()]


def _counted(reading: SignalReading, blocks: Sequence[int], verb: str) -> str:
    return f"{len(blocks)} of {len(reading.block_names)} branches {verb}{'s' * (len(blocks) == 1)}"


def _others(reading: SignalReading, blocks: Sequence[int], worst: int) -> str:
    others = tuple(reading.block_names[index] for index in blocks if index != worst)
    return f", and most of those in {listed(others)}" if others else ""


RULES = (
    Rule("flat_branches", (SignalReading,), judge_flat),
    Rule("dead_branches", (SignalReading,), judge_dead),
    Rule("dead_units", (SignalReading,), judge_units),
    Rule("saturated_units", (SignalReading,), judge_saturation),
)


def judge_values(reading: SignalReading) -> Iterator[Finding]:
    """Values that are not finite."""
    if reading.broken:
        yield Finding(
            rule="not_finite",
            severity="critical",
            sentence=f"Values are NaN or infinite: {listed(reading.broken)}. No measurement can be trusted.",
            number=float(len(reading.broken)),
            threshold=0.0,
            source="every theorem speaks of finite values",
            change="Go back to the last checkpoint with finite weights, check the inputs, and lower the learning rate "
            "or clip the gradient.",
            where=reading.broken,
        )


def judge_dropout(reading: SignalReading) -> Iterator[Finding]:
    """Dropout that is switched on while the network is looked at."""
    if reading.dropout:
        remedy = Remedy("evaluation_mode")
        yield Finding(
            rule="dropout_on",
            severity="warning",
            sentence=f"Dropout is switched on in {len(reading.dropout)} "
            f"place{'s' * (len(reading.dropout) > 1)} ({listed(reading.dropout)}): what was measured is one random "
            "thinning of the network.",
            number=float(len(reading.dropout)),
            threshold=0.0,
            source="a measurement must be the same when it is repeated",
            change="Look at the network in evaluation mode.",
            code=code_of(remedy),
            where=reading.dropout,
            remedy=remedy,
        )


def judge_repeatability(reading: SignalReading) -> Iterator[Finding]:
    """Two calls that disagree although no dropout is on."""
    rounding = torch.finfo(getattr(torch, reading.precision)).eps ** 0.5
    if reading.repeat_difference > rounding and not reading.dropout:
        yield Finding(
            rule="not_repeatable",
            severity="warning",
            sentence=f"Two calls with the same inputs differ by {reading.repeat_difference:.2g} of the largest output: "
            "the network draws at random, or changes when it is called.",
            number=reading.repeat_difference,
            threshold=rounding,
            source="half of the digits of the dtype; sums in another order differ by less",
            change="Switch off stochastic depth, random augmentation and state that a forward pass updates "
            "(model.eval()), or hand in a model without them.",
            code="model.eval()",
            remedy=Remedy("evaluation_mode"),
        )


def judge_statistics(reading: SignalReading) -> Iterator[Finding]:
    """Batch norms that do not normalise, because no batch has updated their statistics."""
    if reading.fresh_norms:
        remedy = Remedy("training_mode", {"modules": reading.fresh_norms})
        yield Finding(
            rule="fresh_statistics",
            severity="note",
            sentence=f"{len(reading.fresh_norms)} batch norm{'s are' if len(reading.fresh_norms) > 1 else ' is'} in "
            "evaluation mode with statistics that no batch has updated: nothing is normalised in what was measured.",
            number=float(len(reading.fresh_norms)),
            threshold=0.0,
            source="running mean 0 and variance 1 make batch norm the identity",
            change="Look at an untrained network in training mode, or let some batches pass first.",
            code=code_of(remedy),
            where=reading.fresh_norms,
            remedy=remedy,
        )


TRUST_RULES = (
    Rule("not_finite", (SignalReading,), judge_values),
    Rule("dropout_on", (SignalReading,), judge_dropout),
    Rule("not_repeatable", (SignalReading,), judge_repeatability),
    Rule("fresh_statistics", (SignalReading,), judge_statistics),
)
