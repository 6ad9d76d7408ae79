"""Depth during training: does a network get deeper as it learns?"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress, Randomness, Settings, SettingsError, option, silent
from skiplens.graph import ResidualNetwork, dissect
from skiplens.graph.batch import Batch, as_batch, take
from skiplens.graph.loss import FROM_MODEL, LossFunction
from skiplens.paths.expanders import PathOptions
from skiplens.paths.forces import block_scales, depth_forces, weight_scale
from skiplens.paths.lesions import Loss
from skiplens.paths.spectrum import signal_or_derivative
from skiplens.readings.reading import Provenance
from skiplens.report.during_training.along import readings_along
from skiplens.report.during_training.depth_reading import DepthHistory
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.training import Checkpoint, Recipe
from skiplens.training.source import source_of


def depth_during_training(  # noqa: PLR0913 - the model, its data, the recipe, and keywords with defaults
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    *,
    probe: Any = None,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
    every: int = 100,
    samples: int = 64,
    mode: Literal["train", "eval"] = "train",
    centre: bool = True,
    centre_samples: bool = True,
    forces: bool = True,
    seed: int = 0,
) -> DepthHistory:
    """The path spectrum, scales and weight norm of a network against the steps of its training, with what drives them.

    A copy is trained; `model` stays as it is. The samples looked at are the same at each moment.

    Args:
        model: Where the run starts; any module that `torch.export` accepts.
        data: As for `train`.
        recipe: How to train; its learning rate is also the size of the step whose forces are looked at.
        probe: `(inputs, targets)` to look at instead of the first samples of the data.
        checkpoint: File to keep the run in; the run goes on from it where it exists.
        progress: Told the steps made.
        every: Steps between two looks; the start and the end are looked at too.
        samples: Samples to look at, the first of the data, where no others are given.
        mode: Mode of the model while looked at; train: batch statistics.
        centre: Whether to remove the mean over the outputs, which a softmax does not see.
        centre_samples: Whether to remove the mean over the samples, which tells none from another.
        forces: Whether to take the forces of theorems 3 and 4 and Euler's identity too, for two more passes a block.
        seed: Names the random direction where the signal has no frozen form.
    """
    asked = DepthOptions(every, samples, mode, centre, centre_samples, forces, seed)
    device = next(model.parameters(), torch.zeros(())).device
    clock = Provenance.begin({**recipe.to_json(), **asked.difference()}, recipe.seed, device)
    if probe is not None:
        seen = as_batch(probe, "probe").labelled()
    elif callable(data):
        seen = as_batch(data(Randomness(recipe.seed).child("depth_probe").torch()), "the batch drawn to look at")
    else:
        seen = take(data, samples)
    moment = DepthMoment(seen.to(device), recipe.loss, recipe.learning_rate, asked)
    total = recipe.steps
    if total is None:
        source = source_of(data, recipe.batch_size, Randomness(recipe.seed), device)
        total = recipe.epochs * source.steps_per_epoch
    plan = MeasureAlong(moment, at_steps=(*range(0, total, every), total))
    along = readings_along(model, data, recipe, plan, checkpoint=checkpoint, progress=progress)
    rows = [replace(taken.value, steps=torch.tensor([taken.step])) for taken in along.at_steps()]
    if not rows:
        raise InvalidInputError(f"The run ended before the first look: {along.history.outcome}.")
    return DepthHistory.joined(rows, outcome=along.history.outcome, provenance=clock.end())


class DepthOptions(Settings):
    """Options of `depth_during_training`."""

    every: int = option(100, "steps between two looks; the start and the end are looked at too")
    samples: int = option(64, "samples to look at, the first of the data, where no others are given")
    mode: Literal["train", "eval"] = option("train", "mode of the model while looked at; train: batch statistics")
    centre: bool = option(True, "remove the mean over the outputs, which a softmax does not see")
    centre_samples: bool = option(True, "remove the mean over the samples, which tells none from another")
    forces: bool = option(True, "also the forces of theorems 3 and 4 and Euler's identity, for two more passes a block")
    seed: int = option(0, "names the random direction where the signal has no frozen form")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        for name in ("every", "samples"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}; ask for at least 1.")


_FORCES = ("radial_slope", "norm_change", "scale_drive", "block_slope", "block_drive")


@dataclass(eq=False)
class DepthMoment:
    """A function of a model that returns a history of one moment; the model's graph is taken once and kept."""

    probe: Batch
    loss: str
    learning_rate: float  # of the step whose forces are looked at
    options: DepthOptions
    _taken_apart: dict[int, ResidualNetwork] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        output_loss(self.loss)  # one that cannot be looked at is refused before anything is trained

    def __call__(self, model: nn.Module) -> DepthHistory:
        """The moment; the model's mode is changed, which whoever calls puts back."""
        model.train(self.options.mode == "train")
        if id(model) not in self._taken_apart:
            self._taken_apart = {id(model): dissect(model, self.probe.inputs)}
        network = self._taken_apart[id(model)]
        asked = self.options
        options = PathOptions(seed=asked.seed, centre=asked.centre, centre_samples=asked.centre_samples)
        spectrum, reason = signal_or_derivative(network, self.probe.inputs, options)
        notes = (f"{reason} So derivatives are followed, and there are no forces.",) if reason else ()
        compare, targets, forces = output_loss(self.loss), self.probe.targets, dict[str, Any]()
        if self.options.forces and spectrum.of == "signal":
            found = depth_forces(network, targets, compare, self.learning_rate)
            loss = found.loss
            for name in _FORCES:
                forces[name] = getattr(found, name).predicted[None]
                forces[f"{name}_measured"] = getattr(found, name).measured[None]
        else:
            with torch.no_grad():
                loss = float(compare(network.run([network.output])[network.output], targets))
        return DepthHistory(
            of=spectrum.of,
            steps=torch.zeros(1, dtype=torch.int64),
            losses=_row(loss),
            energy=spectrum.energy[None],
            coherent_depth=_row(spectrum.coherent_depth),
            laws=(spectrum.law,),
            block_names=spectrum.block_names,
            scales=block_scales(network)[None],
            weight_scale=_row(weight_scale(network)),
            learning_rate=self.learning_rate,
            notes=(*spectrum.notes, *notes),
            **forces,
        )


def output_loss(name: str) -> Loss:
    """The loss called `name` as a function of outputs and targets; one that the model returns itself is refused."""
    if name == FROM_MODEL:
        raise InvalidInputError(
            "The recipe takes the loss from the model, but here it is needed as a function of outputs and targets. "
            "Name a loss, such as 'cross_entropy'."
        )
    return LossFunction(name).rule.plain


def _row(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)
