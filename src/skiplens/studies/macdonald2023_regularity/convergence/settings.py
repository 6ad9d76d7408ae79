"""The runs of theorem 5.1."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings

START_SCALES = (0.1, 1.5, 15.0)
"""Sizes of the first parameters: the theorem speaks of any start."""

STEP_FACTORS = (1.0, 100.0, 10_000.0)
"""Multiples of the certified step size."""

CHECKED = ("mnist_residual_avgpool", "normalised_resnet", "guaranteed_resnet")
"""Networks of the zoo whose hypotheses are checked: a practical one, the theorem's, and the repaired one."""


@dataclass(frozen=True)
class Trapped(ReplicateSettings):
    """The counterexample, near the start from which it is trapped or at the one from which it arrives."""

    cost: Literal["logistic", "square"] = option("logistic", "what is minimised")
    start: Literal["trapped", "free"] = option("trapped", "where descent begins")
    spread: float = option(0.02, "deviation of the starts of replicates")
    iterations: int = option(2000, "steps of gradient descent")


@dataclass(frozen=True)
class OneLayer(ReplicateSettings):
    """One normalised weight, for which both bounds of the proof can be followed for a million steps."""

    iterations: int = option(1_000_000, "steps of gradient descent")


@dataclass(frozen=True)
class Descents(ReplicateSettings):
    """Descents from small, usual and large parameters on random data."""

    iterations: int = option(500, "steps of gradient descent")


@dataclass(frozen=True)
class Repaired(Descents):
    """The same on the repaired network, whose first layer is not normalised."""

    cost: Literal["square", "cross_entropy"] = option("cross_entropy", "what is minimised")


@dataclass(frozen=True)
class DigitCertificate(ReplicateSettings):
    """The theorem's network on digits."""

    images: int = option(32, "training images")
    iterations: int = option(100, "steps of gradient descent")
    scale: float = option(0.1, "size of the first parameters")


@dataclass(frozen=True)
class Hypotheses(ReplicateSettings):
    """Which hypotheses networks meet."""

    images: int = option(32, "training images")
