"""Spectra averaged over the first iterations of training, as figure 2 of the paper shows them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import Progress, silent, track
from skiplens.edits.surgery import add_average_pool_skips
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.jacobians.spectrum import jacobian_spectrum


class SpectrumAverage:
    """The average of the Jacobian spectra that it is fed: sorted values of the same rank are averaged.

    Densities (Lanczos) are put together instead, each with its share, for their nodes have no ranks.
    """

    def __init__(self) -> None:
        self._readings: list[JacobianSpectrum] = []

    def add(self, reading: JacobianSpectrum) -> None:
        """Take one more reading of the same parts and sizes."""
        if self._readings and (reading.names, reading.counts) != (self._readings[0].names, self._readings[0].counts):
            raise InvalidInputError(
                f"A spectrum of {', '.join(reading.names)} with {reading.counts} values cannot be averaged with one of "
                f"{', '.join(self._readings[0].names)} with {self._readings[0].counts}; feed the same model and shapes."
            )
        self._readings.append(reading)

    def reading(self) -> JacobianSpectrum:
        """The average so far."""
        if not self._readings:
            raise InvalidInputError("There is nothing to average yet; add readings first.")
        first = self._readings[0]
        values, weights = self._averaged("singular_values", "weights")
        branch, branch_weights = self._averaged("without_shortcut", "without_shortcut_weights")
        shortcut, shortcut_weights = self._averaged("of_shortcut", "of_shortcut_weights")
        return replace(
            first,
            singular_values=values,
            weights=weights,
            without_shortcut=branch,
            without_shortcut_weights=branch_weights,
            of_shortcut=shortcut,
            of_shortcut_weights=shortcut_weights,
            readings=len(self._readings),
        )

    def _averaged(self, values: str, weights: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        names = getattr(self._readings[0], values)
        pairs = {name: self._one(name, values, weights) for name in names}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}

    def _one(self, name: str, values: str, weights: str) -> tuple[Tensor, Tensor]:
        columns: list[Mapping[str, Tensor]] = [getattr(reading, values) for reading in self._readings]
        shares: list[Mapping[str, Tensor]] = [getattr(reading, weights) for reading in self._readings]
        if all(torch.equal(share[name], shares[0][name]) for share in shares):
            return torch.stack([column[name] for column in columns]).mean(0), shares[0][name]
        nodes, order = torch.cat([column[name] for column in columns]).sort(descending=True)
        return nodes, torch.cat([share[name] for share in shares])[order] / len(shares)


def average_over_training(
    model: nn.Module,
    inputs: Any,
    step: Callable[[], Any],
    iterations: int = 10,
    *,
    progress: Progress = silent,
    **options: Any,
) -> JacobianSpectrum:
    """The average of the spectra before each of the first `iterations` training steps.

    Args:
        model: The model that `step` trains.
        inputs: What its Jacobians are taken at.
        step: Trains the model by one step, in place.
        iterations: How many spectra to average.
        progress: Called as the work goes on.
        options: As for `jacobian_spectrum`.
    """
    if iterations < 1:
        raise InvalidInputError(f"iterations={iterations}; ask for at least 1.")
    average = SpectrumAverage()
    for _ in track(range(iterations), "training and measuring", iterations, progress):
        average.add(jacobian_spectrum(model, inputs, **options))
        step()
    return average.reading()


Change = Callable[..., nn.Module]
"""From a model and inputs to a changed copy, such as `add_isometric_skips`."""


@dataclass(frozen=True)
class SurgeryEffect:
    """Singular values before and after a change, at the same weights and inputs.

    Attributes:
        before: The spectra of the network as it is.
        after: The spectra of the changed network.
        changed: The blocks whose singular values are not what they were.
    """

    before: JacobianSpectrum
    after: JacobianSpectrum
    changed: tuple[str, ...]

    def gain(self, name: str) -> float:
        """By how much the mean of log10 σ of a block (or of "network") goes up."""
        return self.after.statistics(name).mean_log10 - self.before.statistics(name).mean_log10

    def __str__(self) -> str:
        """One line for each block that changed, and for the network."""
        names = [*self.changed, *(("network",) if "network" in self.before.names else ())]
        return "\n".join(
            f"{name}: median singular value {self.before.statistics(name).median:.3g} -> "
            f"{self.after.statistics(name).median:.3g}, mean log10 {self.gain(name):+.3f}"
            for name in names
        )


def predict_effect(
    model: nn.Module, inputs: Any, change: Change = add_average_pool_skips, **options: Any
) -> SurgeryEffect:
    """The singular values of each block before and after `change`, computed at the weights that the model has.

    Args:
        model: Any module that `torch.export` accepts; it is left as it was.
        inputs: Inputs of the model.
        change: Makes the changed copy from the model and the inputs, e.g. `sl.surgery.add_isometric_skips`.
        options: As for `jacobian_spectrum`.
    """
    changed = change(model, inputs)
    before, after = (jacobian_spectrum(network, inputs, **options) for network in (model, changed))
    if before.names != after.names:
        raise InvalidInputError(
            f"The change made other blocks ({', '.join(after.names)}) than there were ({', '.join(before.names)}); "
            "compare the two with jacobian_spectrum instead."
        )
    names = tuple(name for name in before.blocks if not _same(before, after, name))
    return SurgeryEffect(before, after, names)


def _same(before: JacobianSpectrum, after: JacobianSpectrum, name: str) -> bool:
    left, right = before.singular_values[name], after.singular_values[name]
    return left.shape == right.shape and bool((left - right).abs().max() <= 1e-6 * left.max())
