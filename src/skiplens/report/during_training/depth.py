"""Depth during training: does a network get deeper as it learns?"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, SettingsError
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.graph.batch import Batch, as_batch, take
from skiplens.graph.dissect import dissect
from skiplens.graph.loss import FROM_MODEL, LossFunction
from skiplens.graph.network import ResidualNetwork
from skiplens.paths.expanders import PathOptions
from skiplens.paths.forces import DepthForces, block_scales, depth_forces, weight_scale
from skiplens.paths.lesions import Loss
from skiplens.paths.reading import PathSpectrum
from skiplens.paths.spectrum import Request, signal_or_derivative
from skiplens.readings.reading import Provenance
from skiplens.report.during_training.along import readings_along
from skiplens.report.during_training.depth_reading import DepthHistory
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.recipe import Recipe
from skiplens.training.source import source_of


def depth_during_training(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    *,
    probe: Any = None,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
    **options: Any,
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
        options: Fields of `DepthOptions`: every, samples, mode, centre, centre_samples, forces, seed.
    """
    asked = DepthOptions.from_json(options)
    device = next(model.parameters(), torch.zeros(())).device
    clock = Provenance.begin({**recipe.to_json(), **asked.difference()}, recipe.seed, device)
    seen = (_first(data, recipe, asked) if probe is None else as_batch(probe, "probe")).to(device)
    moment = DepthMoment(seen, recipe.loss, recipe.learning_rate, asked)
    plan = MeasureAlong(moment, at_steps=_steps(data, recipe, asked, device))
    along = readings_along(model, data, recipe, plan, checkpoint=checkpoint, progress=progress)
    rows = [replace(taken.value, steps=torch.tensor([taken.step])) for taken in along.at_steps()]
    if not rows:
        raise InvalidInputError(f"The run ended before the first look: {along.history.outcome}.")
    return DepthHistory.joined(rows, outcome=along.history.outcome, provenance=clock.end())


@dataclass(frozen=True)
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


def _first(data: Any, recipe: Recipe, asked: DepthOptions) -> Batch:
    if callable(data):
        return as_batch(data(Randomness(recipe.seed).child("depth_probe").torch()), "the batch drawn to look at")
    return take(data, asked.samples)


def _steps(data: Any, recipe: Recipe, asked: DepthOptions, device: torch.device) -> tuple[int, ...]:
    if recipe.steps is None:
        source = source_of(data, recipe.batch_size, Randomness(recipe.seed), device)
        total = recipe.epochs * source.steps_per_epoch
    else:
        total = recipe.steps
    return (*range(0, total, asked.every), total)


_FORCES = ("radial_slope", "norm_change", "scale_drive", "block_slope", "block_drive")


@dataclass(eq=False)
class DepthMoment:
    """A function of a model that returns a history of one moment; the model's graph is taken once and kept.

    Attributes:
        probe: The samples to look at.
        loss: Name of the loss.
        learning_rate: Size of the step whose forces are looked at.
        options: What to look at.
    """

    probe: Batch
    loss: str
    learning_rate: float
    options: DepthOptions
    _taken_apart: dict[int, ResidualNetwork] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse a loss that cannot be looked at before anything is trained."""
        output_loss(self.loss)

    def __call__(self, model: nn.Module) -> DepthHistory:
        """The moment; the model's mode is changed, which whoever calls puts back."""
        model.train(self.options.mode == "train")
        network = self._network(model)
        spectrum, notes = self._spectrum(network)
        forces = self._forces(network) if self.options.forces and spectrum.of == "signal" else None
        loss = forces.loss if forces is not None else self._loss(network)
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
            notes=notes,
            **({} if forces is None else _fields(forces)),
        )

    def _network(self, model: nn.Module) -> ResidualNetwork:
        if id(model) not in self._taken_apart:
            self._taken_apart = {id(model): dissect(model, self.probe.inputs)}
        return self._taken_apart[id(model)]

    def _spectrum(self, network: ResidualNetwork) -> tuple[PathSpectrum, tuple[str, ...]]:
        asked = self.options
        options = PathOptions(seed=asked.seed, centre=asked.centre, centre_samples=asked.centre_samples)
        spectrum, reason = signal_or_derivative(network, self.probe.inputs, Request(options))
        if not reason:
            return spectrum, spectrum.notes
        return spectrum, (*spectrum.notes, f"{reason} So derivatives are followed, and there are no forces.")

    def _forces(self, network: ResidualNetwork) -> DepthForces:
        return depth_forces(network, self.probe.targets, output_loss(self.loss), self.learning_rate)

    def _loss(self, network: ResidualNetwork) -> float:
        with torch.no_grad():
            output = network.run([network.output])[network.output]
            return float(output_loss(self.loss)(output, self.probe.targets))


def output_loss(name: str) -> Loss:
    """The loss called `name` as a function of outputs and targets; one that the model returns itself is refused."""
    if name == FROM_MODEL:
        raise InvalidInputError(
            "The recipe takes the loss from the model, but here it is needed as a function of outputs and targets. "
            "Name a loss, such as 'cross_entropy'."
        )
    return LossFunction(name).rule.plain


def _fields(forces: DepthForces) -> dict[str, Any]:
    """The forces as rows of a history."""
    predicted = {name: getattr(forces, name).predicted[None] for name in _FORCES}
    return predicted | {f"{name}_measured": getattr(forces, name).measured[None] for name in _FORCES}


def _row(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)
