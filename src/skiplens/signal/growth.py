"""Signal or gradient that grows or fades exponentially with depth, and the branch scale that stops it."""

import math
from collections.abc import Iterator

import torch

from skiplens.edits.remedies import code_of
from skiplens.kernels.finite_width import advice
from skiplens.readings.finding import Finding, Remedy, Rule, Severity
from skiplens.signal.reading import Growth, SignalReading

LEAST_BLOCKS = 3
"""Fewer depths than this give no rate with an uncertainty."""

GROWTH_ALLOWED = 1.0
"""c of α^m = c/L: the power of the signal then grows by less than e^c, however deep the network is."""

SOURCE = (
    "'Residual Tangent Kernels', corollary 1 (corrected: α = (c/L)^{1/m}): with c = 1 the power grows by less than e; "
    "normalised branches of one size add up to a factor L + 1 ('The Loss Surface of Residual Networks', Eq. 20)"
)


def judge_signal(reading: SignalReading) -> Iterator[Finding]:
    """The signal on its way forward."""
    yield from _judged(reading, reading.signal_growth, "signal", allowed_growth(reading.depth))


def judge_gradient(reading: SignalReading) -> Iterator[Finding]:
    """The gradient on its way back, where the signal itself behaves.

    Batch norm and layer norm multiply the gradient by more than they multiply the signal (π/(π−1) for a ReLU), so
    branches that hold one are allowed all that the dtype can resolve.
    """
    if list(judge_signal(reading)):
        return
    normalised = any(reading.normalised) and not reading.fresh_norms
    allowed = _resolution(reading) ** -2 if normalised else allowed_growth(reading.depth)
    yield from _judged(reading, reading.gradient_growth, "gradient", allowed)


def allowed_growth(depth: int) -> float:
    """The growth of power over `depth` blocks that is no cause of worry: e^c·(L + 1)."""
    return math.exp(GROWTH_ALLOWED) * (depth + 1)


def _judged(reading: SignalReading, growth: Growth, what: str, allowed: float) -> Iterator[Finding]:
    depth, surely = reading.depth, growth.surely
    if depth < LEAST_BLOCKS or 2 * depth * abs(surely) <= math.log(allowed):
        return
    grows = surely > 0
    remedy = _remedy(reading) if grows else None
    yield Finding(
        rule=f"{what}_growth",
        severity=_severity(reading, 2 * depth * abs(surely)),
        sentence=_sentence(reading, growth, what),
        number=_exponential(2 * depth * growth.rate),
        threshold=allowed if grows else 1 / allowed,
        source=SOURCE,
        change=_change(reading, grows),
        code=code_of(remedy) if remedy else "",
        where=reading.depths[1:],
        remedy=remedy,
    )


def _sentence(reading: SignalReading, growth: Growth, what: str) -> str:
    verb, way = ("grows" if growth.rate > 0 else "fades"), ("" if what == "signal" else " on its way back")
    rate = f"by a factor {math.exp(growth.rate):.3g} at each block ({math.exp(growth.low):.3g} to "
    total = _exponential(reading.depth * growth.rate)
    return (
        f"The {what} {verb} exponentially with depth{way}: {rate}{math.exp(growth.high):.3g}), "
        f"{total:.3g} over all {reading.depth}."
    )


def _severity(reading: SignalReading, log_power: float) -> Severity:
    """A note where running statistics were never learned: training would normalise what is measured here."""
    if reading.fresh_norms:
        return "note"
    return "critical" if log_power > -math.log(_resolution(reading)) else "warning"


def _change(reading: SignalReading, grows: bool) -> str:
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
        f"Scale the branches so that each adds 1/L = 1/{reading.depth} of the power: α = L^(−1/m) = {scale:.3g} for "
        f"each of the m = {matrices} matrices of a branch, or the factors below for the last layer of each."
    )


def _remedy(reading: SignalReading) -> Remedy | None:
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


def _resolution(reading: SignalReading) -> float:
    return torch.finfo(getattr(torch, reading.precision)).eps


def _exponential(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


RULES = (
    Rule("signal_growth", (SignalReading,), judge_signal),
    Rule("gradient_growth", (SignalReading,), judge_gradient),
)
