"""Training curves of original and modified networks, one figure for each data set and learning rate."""

from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.figures import Band, Figure, Line, Points
from skiplens.figures.figure import numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.macdonald2023_regularity.images.claims import NAMES
from skiplens.studies.macdonald2023_regularity.images.pairs import final_loss, mean_and_deviation, of_data
from skiplens.studies.macdonald2023_regularity.images.settings import SHOWN, Data

SERIES = ((False, "original: convolutional shortcuts"), (True, "modified: average pool + convolution"))

SPREAD = 5.0


def shown_curves(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Figure 3: each data set at the learning rate that suits the original network best."""
    return tuple(
        _figure(chosen, data, rate, "Figure 3")
        for data, rate in SHOWN.items()
        if (chosen := of_data(readings, data, learning_rate=rate))
    )


def rate_curves(readings: Sequence[Measurement], data: Data, name: str) -> tuple[Figure, ...]:
    """Figures 4 to 6: one data set at all learning rates."""
    rates = sorted({reading.setting("learning_rate") for reading in readings}, reverse=True)
    return tuple(_figure(of_data(readings, data, learning_rate=rate), data, rate, name) for rate in rates)


def final_losses(readings: Sequence[Measurement], data: Data, name: str) -> tuple[Figure, ...]:
    """Tables 1 to 3 as a figure: final loss against learning rate."""
    rates = sorted({reading.setting("learning_rate") for reading in readings})
    if not rates:
        return ()
    points, lines = [], []
    for number, (modified, label) in enumerate(SERIES):
        by_rate = [of_data(readings, data, learning_rate=rate, modified=modified) for rate in rates]
        found = [mean_and_deviation([final_loss(reading) for reading in chosen]) for chosen in by_rate]
        means, deviations = (numbers(column) for column in zip(*found, strict=True))
        points.append(Points(numbers(rates), means, label, deviations))
        lines.append(Line(numbers(rates), means, colour=colour(number)))
    return (
        Figure(
            name=f"{data}_final_loss",
            title=f"{name}: final training loss, {_network(data)} on {_trained_on(readings, data)}",
            caption="Mean loss of the last epoch, with one standard deviation over trials.",
            x_label="learning rate",
            y_label="loss of the last epoch",
            marks=(*points, *lines),
            x_log=True,
            y_log=_spread(lines),
        ),
    )


def _figure(readings: Sequence[Measurement], data: Data, rate: float, name: str) -> Figure:
    marks: list[Band | Line] = []
    for number, (modified, label) in enumerate(SERIES):
        losses = _losses([reading for reading in readings if reading.setting("modified") == modified])
        marks += curve(range(1, losses.shape[1] + 1), losses, label, number)
    trials = len({reading.setting("replicate") for reading in readings})
    return Figure(
        name=f"{data}_rate_{rate:g}".replace(".", "_"),
        title=f"{name}: {_network(data)} on {_trained_on(readings, data)}, learning rate {rate:g}",
        caption=f"Mean training loss of each epoch over {trials} trials, with one standard deviation shaded. Both "
        "networks of a trial start from the same weights and see the same batches.",
        x_label="epoch",
        y_label="training loss",
        marks=tuple(marks),
        y_log=_spread(marks),
    )


def _spread(marks: Sequence[Band | Line]) -> bool:
    """Whether losses spread so far that an axis wants to be logarithmic."""
    heights = [height for mark in marks if isinstance(mark, Line) for height in mark.y if height > 0]
    return bool(heights) and max(heights) > SPREAD * min(heights)


def _losses(readings: Sequence[Measurement]) -> Tensor:
    return torch.stack([reading["epoch_loss"] for reading in readings])


def _network(data: Data) -> str:
    return "ResNet-50" if data == "imagenet" else "ResNet-18"


def _trained_on(readings: Sequence[Measurement], data: Data) -> str:
    """The data set, or what stands in for it."""
    one = readings[0]
    if one.setting("data") != data:
        return f"digits in place of {NAMES[data]}"
    return NAMES[data] if one.setting("images") is None else f"{one.setting('images')} images of {NAMES[data]}"
