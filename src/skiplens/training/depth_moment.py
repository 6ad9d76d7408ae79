"""How deep a network is at one moment of its training, and what drives its scales there."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch
from skiplens.lenses.paths.fallback import signal_or_derivative
from skiplens.lenses.paths.forces import DepthForces, depth_forces
from skiplens.lenses.paths.lesions import Loss
from skiplens.lenses.paths.options import PathOptions
from skiplens.lenses.paths.scales import block_scales, weight_scale
from skiplens.lenses.paths.spectrum import Request
from skiplens.readings.depth_history import DepthHistory
from skiplens.readings.paths import PathSpectrum
from skiplens.residual import ResidualNetwork, dissect
from skiplens.training.depth_options import DepthOptions
from skiplens.training.losses import FROM_MODEL, LossFunction

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
