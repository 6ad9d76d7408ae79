"""From the first losses to a later one: a linear model of logarithms, fitted on networks that were trained to the end.

What is predicted is ln(loss / guess). The fit, its residuals and what it was fitted on are in `fit.json`, written by
`benchmarks/trainability/fit.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from skiplens.base.errors import BrokenFileError
from skiplens.base.files import read_json
from skiplens.graph.inputs import first_line
from skiplens.trainability.pilot import Pilot, Trial, logarithmic_mean

FITS = Path(__file__).with_name("fit.json")
STUCK, MOVED = 0.03, 0.08  # logarithms below a guess: who has not come so far is stuck, who has will go on
CLOSE = 0.1  # logarithms of the loss; of rates so close the smaller is better in the long run
LOWEST, HIGHEST = -7.0, 2.0  # ln(loss / guess) outside of this is cut: nobody needs to tell e^-8 from e^-9


@dataclass(frozen=True)
class Situation:
    """What is known besides the losses: the unit of the loss, and how often each sample comes."""

    guess: float
    epoch: float  # steps in which all samples came once; infinite where they are always fresh
    start: Mapping[str, float] = field(default_factory=dict)  # readings before the first step
    share: float = 1.0  # of all samples that the pilot met: the others will have to be learnt by heart too


def level_of(trial: Trial, situation: Situation) -> float:
    """Where a trial has come to: the mean ln(loss / guess) of its last quarter."""
    unit = math.log(situation.guess)
    logs = [logarithmic_mean([loss]) - unit for loss in last_quarter(trial)]
    return float(np.clip(logs, LOWEST, HIGHEST).mean())


def last_quarter(trial: Trial) -> list[float]:
    """The losses that say where a trial has come to."""
    return trial.losses[-max(3, len(trial.losses) // 4) :]


def trial_features(pilot: Pilot, trial: Trial, situation: Situation, steps: float) -> dict[str, float]:
    """What a trial says about the loss after `steps` steps: where it has come to, and how much more there is to do.

    So little is told that of two networks on the same data the one whose trial ends lower is expected to end lower.
    """
    level = level_of(trial, situation)
    moved = min(1.0, max(0.0, (-level - STUCK) / (MOVED - STUCK)))
    return {
        "level": level,
        "moved": moved,
        "moved x ahead": moved * math.log(max(1.0, steps / pilot.longest)),
        "moved x by heart": moved * math.log1p(steps / situation.epoch) * math.log(1 / situation.share),
    }


def advised(pilot: Pilot, situation: Situation) -> Trial | None:
    """The trial with the smallest rate of those that have come as low as any; None where all diverged."""
    levels = [(level_of(trial, situation), trial) for trial in candidates(pilot)]
    lowest = min((level for level, _ in levels), default=math.inf)
    return next((trial for level, trial in levels if level <= lowest + CLOSE), None)


def candidates(pilot: Pilot) -> list[Trial]:
    """The trials that went far enough to be advised: at least a third of the way of the furthest."""
    return [trial for trial in pilot.trials if not trial.diverged and 3 * len(trial.losses) >= pilot.longest]


@dataclass(frozen=True)
class Fit:
    """A linear model with the quantiles of its residuals by predicted value."""

    names: tuple[str, ...]
    centres: np.ndarray
    scales: np.ndarray
    weights: np.ndarray
    offset: float
    edges: np.ndarray  # predicted values between which the residuals below hold
    low: np.ndarray  # 5 % quantiles of the residuals
    high: np.ndarray  # 95 %

    def predict(self, features: Mapping[str, float]) -> tuple[float, float, float]:
        """The expected value and the ends of its 90 % interval, which is open below what the fit can tell apart."""
        values = np.array([features[name] for name in self.names])
        values = np.where(np.isnan(values), self.centres, values)  # what could not be read says nothing
        centre = float((values - self.centres) / self.scales @ self.weights) + self.offset
        centre = float(np.clip(centre, LOWEST, HIGHEST))
        low, high = (centre + float(np.interp(centre, self.edges, ends)) for ends in (self.low, self.high))
        return centre, low if low > LOWEST else -math.inf, high

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Fit":
        """The fit that `benchmarks/trainability/fit.py` wrote."""
        arrays = {
            name: np.array(values[name], dtype=float)
            for name in ("centres", "scales", "weights", "edges", "low", "high")
        }
        names = tuple(map(str, values["names"]))
        lengths = [len(names)] * 3 + [arrays["edges"].size] * 3
        if any(array.shape != (length,) for array, length in zip(arrays.values(), lengths, strict=True)):
            raise ValueError("its rows are not of one length")
        return cls(names=names, offset=float(values["offset"]), **arrays)


@cache
def fit_for(kind: str) -> Fit:
    """The fit of that kind as it was stored: ``steps`` from a pilot, ``readings`` from readings alone."""
    try:
        return Fit.from_json(read_json(FITS)[kind])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(f"{FITS} is damaged ({first_line(error)}). Install Skiplens again.") from error
