"""The figure of a training race."""

import torch

from skiplens.figures.bundle import bundle
from skiplens.figures.figure import Figure
from skiplens.readings import VerificationReading


def losses_of_race(reading: VerificationReading) -> Figure | None:
    """The loss along training of the model as it is and of the changed copy, over all seeds."""
    if not reading.seeds:
        return None
    steps = torch.arange(reading.losses_before.shape[1])
    names = (
        f"{word} (learning rate {rate:g})" for word, rate in zip(("as it is", "changed"), reading.rates, strict=True)
    )
    sides = (reading.losses_before, reading.losses_after)
    drawn = [bundle(steps, losses, name, i) for i, (losses, name) in enumerate(zip(sides, names, strict=True))]
    return Figure(
        name=f"race_{reading.rule}",
        title="Training before and after the change",
        caption=f"Mean loss over {reading.seeds} seeds and, shaded, the range between them. Both sides see the same "
        "batches in the same order, each at the learning rate that suits it best; a line ends where a run diverged.",
        x_label="step",
        y_label="loss",
        marks=tuple(mark for marks in drawn for mark in marks),
        y_log=True,
    )
