"""From the first losses to a later one: a linear model of logarithms, fitted on networks that were trained to the end.

What is predicted is ln(loss / guess). The fit, its residuals and what it was fitted on are in `fit.json`, written by
`benchmarks/trainability/fit.py`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from skiplens.trainability.pilot import Pilot, Trial, logarithmic_mean

LOWEST, HIGHEST = -7.0, 2.0  # ln(loss / guess) outside of this is cut: nobody needs to tell e^-8 from e^-9


@dataclass(frozen=True)
class Situation:
    """What is known besides the losses: the unit of the loss, and how often each sample comes."""

    guess: float
    epoch: float  # steps in which all samples came once; infinite where they are always fresh


def trial_features(trial: Trial, situation: Situation, steps: float) -> dict[str, float]:
    """What the losses of one trial say about its loss after `steps` steps."""
    unit = math.log(situation.guess)
    logs = np.clip([logarithmic_mean([loss]) - unit for loss in trial.losses], LOWEST, HIGHEST)
    taken = len(logs)
    level, middle = _mean(logs, 0.75, 1.0), _mean(logs, 0.4, 0.7)
    ahead = math.log(max(steps, taken) / taken)
    times = math.log1p(steps / situation.epoch)
    return {
        "level": level,
        "start": float(logs[0]),
        "fall": level - float(logs[0]),
        "slope": level - middle,
        "noise": float(np.std(np.diff(logs[taken // 2 :]))) if taken > 4 else 0.0,
        "ahead": ahead,
        "level x ahead": level * ahead,
        "slope x ahead": (level - middle) * ahead,
        "times seen": times,
        "level x times seen": level * times,
    }


def pilot_features(pilot: Pilot, situation: Situation, steps: float) -> dict[str, float]:
    """The features of the best trial, and how the others fared beside it."""
    best = pilot.best
    features = trial_features(best, situation, steps)
    others = [trial for trial in pilot.trials if trial is not best and not trial.diverged]
    behind = sorted(trial.level(3) - logarithmic_mean(best.losses[: len(trial.losses)][-3:]) for trial in others)
    gaps = [*np.clip(behind, -1.0, 2.0), 2.0, 2.0]
    larger = [trial for trial in pilot.trials if trial.rate > best.rate]
    return features | {
        "second": float(gaps[0]),
        "third": float(gaps[1]),
        "diverged": sum(trial.diverged for trial in pilot.trials) / len(pilot.trials),
        "room above": float(sum(not trial.diverged for trial in larger)),
        "taken": math.log(len(best.losses)),
    }


def _mean(values: np.ndarray, first: float, last: float) -> float:
    start, end = int(first * len(values)), max(int(first * len(values)) + 1, round(last * len(values)))
    return float(np.mean(values[start:end]))


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
        """The expected value and the ends of its 90 % interval."""
        values = np.array([features[name] for name in self.names])
        centre = float((values - self.centres) / self.scales @ self.weights) + self.offset
        centre = float(np.clip(centre, LOWEST, HIGHEST))
        low, high = (float(np.interp(centre, self.edges, ends)) for ends in (self.low, self.high))
        return centre, centre + low, centre + high

    def to_json(self) -> dict[str, Any]:
        """The fit in words that JSON has, to six digits."""
        values = {name: getattr(self, name) for name in ("centres", "scales", "weights", "edges", "low", "high")}
        rounded = {name: [float(f"{v:.6g}") for v in array] for name, array in values.items()}
        return {"names": list(self.names), "offset": float(f"{self.offset:.6g}"), **rounded}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Fit":
        """The fit that `to_json` wrote."""
        arrays = {name: np.array(values[name]) for name in ("centres", "scales", "weights", "edges", "low", "high")}
        return cls(names=tuple(values["names"]), offset=values["offset"], **arrays)


def fitted_line(rows: Sequence[Mapping[str, float]], targets: np.ndarray, ridge: float) -> Fit:
    """The ridge regression of `targets` on the features in `rows`, without residuals yet."""
    names = tuple(rows[0])
    table = np.array([[row[name] for name in names] for row in rows])
    centres, scales = table.mean(0), table.std(0) + 1e-6
    standard, offset = (table - centres) / scales, float(targets.mean())
    weights = np.linalg.solve(
        standard.T @ standard + ridge * len(rows) * np.eye(len(names)), standard.T @ (targets - offset)
    )
    nothing = np.zeros(1)
    return Fit(names, centres, scales, weights, offset, nothing, nothing, nothing)


@cache
def fit_for(kind: str) -> Fit:
    """The fit of that kind as it was stored: ``steps`` from a pilot, ``readings`` from readings alone."""
    text = (files("skiplens.trainability") / "fit.json").read_text()
    return Fit.from_json(json.loads(text)[kind])
