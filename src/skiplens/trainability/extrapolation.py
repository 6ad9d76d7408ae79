"""From the first losses to a later one: a linear model of logarithms, fitted on networks that were trained to the end.

What is predicted is ln(loss / guess). The fit, its residuals and what it was fitted on are in `fit.json`, written by
`benchmarks/trainability/fit.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from skiplens.base.errors import BrokenFileError
from skiplens.base.files import read_json
from skiplens.graph.inputs import first_line
from skiplens.trainability.pilot import LOOKED_AT, Pilot, Trial, logarithmic_mean

FITS = Path(__file__).with_name("fit.json")
LOWEST, HIGHEST = -7.0, 2.0  # ln(loss / guess) outside of this is cut: nobody needs to tell e^-8 from e^-9


@dataclass(frozen=True)
class Situation:
    """What is known besides the losses: the unit of the loss, and how often each sample comes."""

    guess: float
    epoch: float  # steps in which all samples came once; infinite where they are always fresh
    start: Mapping[str, float] = field(default_factory=dict)  # readings before the first step


def trial_features(pilot: Pilot, trial: Trial, situation: Situation, steps: float) -> dict[str, float]:
    """What the losses of one trial, and those of its neighbours, say about its loss after `steps` steps."""
    unit = math.log(situation.guess)
    logs = np.clip([logarithmic_mean([loss]) - unit for loss in trial.losses], LOWEST, HIGHEST)
    taken, place = len(logs), pilot.trials.index(trial)
    level, middle = _mean(logs, 0.75, 1.0), _mean(logs, 0.4, 0.7)
    ahead, times = math.log(max(steps, taken) / taken), math.log1p(steps / situation.epoch)
    later = logs[taken // 2 :]
    diverged = [number for number, other in enumerate(pilot.trials) if other.diverged and number > place]
    return {
        "level": level,
        "start": float(logs[0]),
        "slope": level - middle,
        "noise": float(np.std(np.diff(later))) if len(later) > 2 else 0.0,
        "rise": float(later.max() - logs[: max(1, taken // 2)].min()),
        "taken": math.log(taken),
        "ahead": ahead,
        "level x ahead": level * ahead,
        "slope x ahead": (level - middle) * ahead,
        "times seen": times,
        "level x times seen": level * times,
        "to the edge": float(min(_FAR, diverged[0] - place)) if diverged else float(_FAR),
        "above": _gap(pilot, trial, place + 1),
        "below": _gap(pilot, trial, place - 1),
        "explained now": pilot.explained,
        **{f"{name} at the start": value for name, value in situation.start.items()},
    }


_FAR = 4  # rates between a trial and the first larger one that diverged: more make no difference
_GAP = 2.0  # logarithms between neighbours: more make no difference, and one that diverged is so far behind


def _gap(pilot: Pilot, trial: Trial, place: int) -> float:
    """How far the trial at `place` is behind, where both have taken as many steps."""
    if not 0 <= place < len(pilot.trials):
        return 0.0
    other = pilot.trials[place]
    taken = min(len(other.losses), len(trial.losses))
    behind, here = (logarithmic_mean(losses[:taken][-LOOKED_AT:]) for losses in (other.losses, trial.losses))
    return _GAP if other.diverged else float(np.clip(behind - here, -_GAP, _GAP))


def candidates(pilot: Pilot) -> list[Trial]:
    """The trials that went far enough to be advised: at least a third of the way of the furthest."""
    furthest = max(len(trial.losses) for trial in pilot.trials)
    return [trial for trial in pilot.trials if not trial.diverged and 3 * len(trial.losses) >= furthest]


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
        values = np.where(np.isnan(values), self.centres, values)  # what could not be read says nothing
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
        arrays = {
            name: np.array(values[name], dtype=float)
            for name in ("centres", "scales", "weights", "edges", "low", "high")
        }
        names = tuple(map(str, values["names"]))
        lengths = [len(names)] * 3 + [arrays["edges"].size] * 3
        if any(array.shape != (length,) for array, length in zip(arrays.values(), lengths, strict=True)):
            raise ValueError("its rows are not of one length")
        return cls(names=names, offset=float(values["offset"]), **arrays)


def fitted_line(rows: Sequence[Mapping[str, float]], targets: np.ndarray, ridge: float) -> Fit:
    """The ridge regression of `targets` on the features in `rows`, without residuals yet."""
    names = tuple(name for name in rows[0] if not all(math.isnan(row[name]) for row in rows))
    table = np.array([[row[name] for name in names] for row in rows])
    centres, scales = np.nanmean(table, 0), np.nanstd(table, 0) + 1e-6
    table = np.where(np.isnan(table), centres, table)
    standard, offset = (table - centres) / scales, float(targets.mean())
    weights = np.linalg.solve(
        standard.T @ standard + ridge * len(rows) * np.eye(len(names)), standard.T @ (targets - offset)
    )
    nothing = np.zeros(1)
    return Fit(names, centres, scales, weights, offset, nothing, nothing, nothing)


@cache
def fit_for(kind: str) -> Fit:
    """The fit of that kind as it was stored: ``steps`` from a pilot, ``readings`` from readings alone."""
    try:
        return Fit.from_json(read_json(FITS)[kind])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(f"{FITS} is damaged ({first_line(error)}). Install Skiplens again.") from error
