"""A tangent kernel that is ill conditioned, or that differs much from seed to seed."""

import math
from collections.abc import Iterator

import torch

from skiplens.core.errors import InvalidInputError
from skiplens.findings.finding import Finding
from skiplens.findings.rule import Rule
from skiplens.lenses.signal.equivalent import equivalent_network as equivalent_network
from skiplens.readings import SignalReading, TangentReading
from skiplens.theory.finite_width import advice, kernel_moments
from skiplens.theory.finite_width.networks import ResNet

MANY_STEPS = 1e4
"""Steps of gradient descent for the slowest direction that count as many."""

FAR_FROM_CONSTANT = 1.0
"""Relative variance at which the kernel's standard deviation over seeds is as large as its mean."""

WANTED_VARIANCE = 0.1


def judge_condition(reading: TangentReading) -> Iterator[Finding]:
    """How much longer the slowest direction takes than the fastest."""
    condition, samples = reading.condition_number, len(reading.kernel)
    if condition <= MANY_STEPS:
        return
    singular = math.isinf(condition)
    limit = 1 / (samples * torch.finfo(reading.kernel.dtype).eps)
    yield Finding(
        rule="kernel_condition",
        severity="warning" if singular else "note",
        sentence="The tangent kernel is singular to working precision: some of these samples cannot be learned apart."
        if singular
        else f"The tangent kernel has condition number {condition:.2g}: gradient descent needs that many steps for the "
        "slowest direction of the outputs.",
        number=condition,
        threshold=limit if singular else MANY_STEPS,
        source="gradient flow f_t = y + e^{−2Kt}(f_0 − y), 'Residual Tangent Kernels', lemma 1: convergence needs "
        "λ_min(K) > 0 and takes λ_max/λ_min steps",
        change="Look for duplicate or nearly parallel inputs; standardise the inputs; use shorter or more strongly "
        "scaled-down branches, whose kernel tells inputs apart better.",
    )


def judge_regime(reading: SignalReading) -> Iterator[Finding]:
    """Whether a network of this depth, width and branch size has a kernel of its own from seed to seed."""
    network = equivalent_network(reading)
    if network is None:
        return
    variance = float(kernel_moments(network).relative_variance)
    if not variance > FAR_FROM_CONSTANT:
        return
    yield Finding(
        rule="kernel_regime",
        severity="note",
        sentence=f"Far from the kernel regime: at {network.depth} blocks of width {network.width} the tangent kernel "
        f"varies from seed to seed by {math.sqrt(variance):.2g} times its mean.",
        number=variance,
        threshold=FAR_FROM_CONSTANT,
        source="exact variance of the kernel's diagonal for the residual network of this depth, width, branch depth "
        "and measured branch size ('Residual Tangent Kernels', theorem 5, corrected)",
        change=_wider(network),
    )


def _wider(network: ResNet) -> str:
    scaled = advice.branch_scale(network.depth, network.branch_depth)
    words = (
        f"Scale the matrices of the branches by α = {scaled.branch_scale:.3g}, which leaves a relative variance of "
        f"{scaled.scaled_variance / network.width:.2g}"
    )
    try:
        enough = advice.width(WANTED_VARIANCE, network).width
    except InvalidInputError:
        return f"{words}; no reasonable width would do it."
    return f"{words}; or use a width of {enough}. A network outside the kernel regime may still train well."


RULES = (
    Rule("kernel_condition", (TangentReading,), judge_condition),
    Rule("kernel_regime", (SignalReading,), judge_regime),
)
