"""Pairs of an original and a modified network of the same trial, and when they can be compared with the paper's."""

import math
from collections.abc import Callable, Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Judgement
from skiplens.studies.images import missing
from skiplens.studies.macdonald2023_regularity.images.settings import CLASSES, Data, ImageTraining
from skiplens.studies.statistics import Band, decide, over_seeds

Number = Callable[[Measurement], float]

FEW = 2
"""Fewer pairs than this have no interval."""
_LOGARITHM_OF_NOTHING = 1e-12


def of_data(readings: Sequence[Measurement], data: Data, **settings: object) -> list[Measurement]:
    """The readings of a data set, or of the digits that stand in for it, whose settings have the given values."""
    wanted = {"classes": CLASSES[data], **settings}
    return [reading for reading in readings if all(reading.setting(name) == value for name, value in wanted.items())]


def final_loss(reading: Measurement) -> float:
    """The mean loss of the last epoch; NaN where the run diverged."""
    return float(reading["epoch_loss"][-1])


def log_final_loss(reading: Measurement) -> float:
    """Its logarithm."""
    return math.log(max(final_loss(reading), _LOGARITHM_OF_NOTHING))


def mean_log_loss(reading: Measurement) -> float:
    """The mean over epochs of the logarithm of the loss: how high the training curve lies."""
    return float(reading["epoch_loss"].clamp(min=_LOGARITHM_OF_NOTHING).log().mean())


def accuracy(reading: Measurement) -> float:
    """Test accuracy as the authors measured it: with the statistics of the test batches."""
    return float(reading["accuracy_batch_statistics"])


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, the paper's, of the runs that ended; NaN where none did."""
    ended = torch.tensor(values, dtype=torch.float64)
    ended = ended[torch.isfinite(ended)]
    return float(ended.mean()), float((ended - ended.mean()).square().mean().sqrt())


def differences(readings: Sequence[Measurement], number: Number) -> Tensor:
    """Modified minus original in every trial; a trial in which one of the two diverged is left out."""
    by_trial = {
        modified: {r.setting("replicate"): number(r) for r in readings if r.setting("modified") == modified}
        for modified in (False, True)
    }
    trials = sorted(by_trial[False].keys() & by_trial[True].keys())
    found = torch.tensor([by_trial[True][t] - by_trial[False][t] for t in trials], dtype=torch.float64)
    return found[torch.isfinite(found)]


def not_comparable(readings: Sequence[Measurement], data: Data, all_epochs: bool) -> str:
    """Why these runs say nothing about the paper's, or nothing if they do.

    Args:
        readings: Of one data set and learning rate.
        data: The data set.
        all_epochs: Whether the number of epochs must be the paper's too.
    """
    if not readings:
        return missing(data) or "This preset has no runs at this learning rate."
    one = readings[0]
    if one.setting("data") != data:
        return f"This preset trains on embedded digits, not on {data}; use --preset paper on a GPU."
    if one.setting("images") is not None or one.setting("width") != ImageTraining().width:
        return (
            f"This preset trains a network of width {one.setting('width')} on {one.setting('images')} images, to see "
            "that everything runs; use --preset paper on a GPU."
        )
    if all_epochs and one.setting("epochs") != ImageTraining().epochs:
        return f"The runs have {one.setting('epochs')} epochs instead of {ImageTraining().epochs}."
    return ""


def judged(values: Tensor, band: Band, sentence: str, problem: str) -> Judgement:
    """The decision on one number, or one row, a trial; where there is a problem, that."""
    if problem or len(values) < FEW:
        return Judgement("not attempted", explanation=f"{sentence} {problem or 'Too few trials ended.'}")
    return decide(over_seeds(values), band, sentence)
