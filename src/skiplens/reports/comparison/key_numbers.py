"""The few numbers of a reading by which models are compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from skiplens.readings import (
    HessianSpectrum,
    HypothesesReading,
    JacobianSpectrum,
    PathSpectrum,
    Reading,
    SignalReading,
    StructureReading,
    TangentReading,
)


@dataclass(frozen=True)
class KeyNumber:
    """A number with its name.

    One that is `logarithmic` is compared by its logarithm: factors, not differences. One that is `exact` does not
    depend on how weights are drawn.
    """

    label: str
    value: float
    logarithmic: bool = False
    exact: bool = False


def key_numbers(reading: Reading) -> tuple[KeyNumber, ...]:
    """The numbers of `reading`, in order; none for kinds that are not compared."""
    return _NUMBERS.get(type(reading), lambda reading: ())(reading)


def _structure(reading: StructureReading) -> tuple[KeyNumber, ...]:
    return (
        KeyNumber("parameters", float(reading.parameters), exact=True),
        KeyNumber("residual blocks", float(len(reading.block_names)), exact=True),
        KeyNumber("projection shortcuts", float(reading.shortcuts.count("projection")), exact=True),
    )


def _signal(reading: SignalReading) -> tuple[KeyNumber, ...]:
    if not reading.depth:
        return ()
    return (
        KeyNumber("signal, factor per block", math.exp(reading.signal_growth.rate), logarithmic=True),
        KeyNumber("gradient, factor per block", math.exp(reading.gradient_growth.rate), logarithmic=True),
        KeyNumber("branch over shortcut, median", float(reading.branch_ratios.median()), logarithmic=True),
    )


def _paths(reading: PathSpectrum) -> tuple[KeyNumber, ...]:
    if not reading.blocks:
        return ()
    return (
        KeyNumber("mean depth in branches", reading.mean_depth),
        KeyNumber("coherent depth in branches", reading.coherent_depth),
    )


def _curvature(reading: HessianSpectrum) -> tuple[KeyNumber, ...]:
    return (
        KeyNumber("loss", reading.loss, logarithmic=True),
        KeyNumber("length of the gradient", reading.gradient_norm, logarithmic=True),
        KeyNumber("largest eigenvalue", reading.largest, logarithmic=True),
        KeyNumber("smallest eigenvalue", reading.smallest),
        KeyNumber("trace", reading.trace),
        KeyNumber("condition number", reading.condition_number, logarithmic=True),
        KeyNumber("share of curvature that is downward", reading.negative_mass),
    )


def _jacobians(reading: JacobianSpectrum) -> tuple[KeyNumber, ...]:
    found = []
    if reading.blocks:
        blocks = [reading.statistics(name) for name in reading.blocks]
        mean = float(torch.tensor([block.mean_log10 for block in blocks], dtype=torch.float64).mean())
        found += [
            KeyNumber("singular value of blocks, geometric mean", 10**mean, logarithmic=True),
            KeyNumber("directions that blocks lose, worst block", max(block.near_zero for block in blocks)),
        ]
    if "network" in reading.singular_values:
        whole = reading.statistics("network")
        found += [
            KeyNumber("largest singular value end to end", whole.largest, logarithmic=True),
            KeyNumber("root mean square singular value end to end", whole.rms, logarithmic=True),
        ]
    return tuple(found)


def _hypotheses(reading: HypothesesReading) -> tuple[KeyNumber, ...]:
    return (
        KeyNumber("hypotheses that hold", float(reading.verdicts.count("holds"))),
        KeyNumber("hypotheses that fail", float(len(reading.failing))),
    )


def _tangent(reading: TangentReading) -> tuple[KeyNumber, ...]:
    found = [
        KeyNumber("condition number of the kernel", reading.condition_number, logarithmic=True),
        KeyNumber("effective rank of the kernel", reading.effective_rank),
        KeyNumber("mean of the kernel's diagonal", float(reading.kernel.diagonal().double().mean()), logarithmic=True),
    ]
    if reading.alignment is not None:
        found.append(KeyNumber("alignment with the classes", reading.alignment))
    return tuple(found)


_NUMBERS: dict[type[Reading], Callable[[Any], tuple[KeyNumber, ...]]] = {
    StructureReading: _structure,
    SignalReading: _signal,
    PathSpectrum: _paths,
    HessianSpectrum: _curvature,
    JacobianSpectrum: _jacobians,
    HypothesesReading: _hypotheses,
    TangentReading: _tangent,
}
