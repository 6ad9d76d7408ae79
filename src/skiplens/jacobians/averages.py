"""Jacobian spectra side by side: averaged over the first iterations of training, and before and after a change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress, in_words, refuse_if, silent, track
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
        refuse_if(not self._readings, "There is nothing to average yet; add readings first.")
        columns: dict[str, Any] = {}
        for field in ("singular_values", "without_shortcut", "of_shortcut"):
            shares = "weights" if field == "singular_values" else f"{field}_weights"
            pairs = {name: self._average(name, field, shares) for name in getattr(self._readings[0], field)}
            columns[field] = {name: values for name, (values, _) in pairs.items()}
            columns[shares] = {name: weights for name, (_, weights) in pairs.items()}
        return replace(self._readings[0], **columns, readings=len(self._readings))

    def _average(self, name: str, field: str, shares: str) -> tuple[Tensor, Tensor]:
        values: list[Tensor] = [getattr(reading, field)[name] for reading in self._readings]
        weights: list[Tensor] = [getattr(reading, shares)[name] for reading in self._readings]
        if all(torch.equal(share, weights[0]) for share in weights):
            return torch.stack(values).mean(0), weights[0]
        nodes, order = torch.cat(values).sort(descending=True)
        return nodes, torch.cat(weights)[order] / len(weights)


def average_over_training(
    model: nn.Module,
    inputs: Any,
    step: Callable[[], Any],
    iterations: int = 10,
    *,
    progress: Progress = silent,
    **options: Any,
) -> JacobianSpectrum:
    """The average of the spectra before each of the first `iterations` training steps, as figure 2 of the paper shows.

    `step` trains the model by one step, in place; all options are those of `jacobian_spectrum`.
    """
    refuse_if(iterations < 1, f"iterations={iterations}; ask for at least 1.")
    average = SpectrumAverage()
    for _ in track(range(iterations), "training and measuring", iterations, progress):
        average.add(jacobian_spectrum(model, inputs, **options))
        step()
    return average.reading()


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
            f"{name}: median singular value {in_words(self.before.statistics(name).median)} -> "
            f"{in_words(self.after.statistics(name).median)}, mean log10 {self.gain(name):+.3f}"
            for name in names
        )


def predict_effect(
    model: nn.Module, inputs: Any, change: Callable[..., nn.Module] = add_average_pool_skips, **options: Any
) -> SurgeryEffect:
    """The singular values of each block before and after `change`, computed at the weights that the model has.

    The changed copy is made from the model, which is left as it was, and the inputs: e.g. by
    `sl.surgery.add_isometric_skips`. All options are those of `jacobian_spectrum`.
    """
    before, after = (jacobian_spectrum(one, inputs, **options) for one in (model, change(model, inputs)))
    if before.names != after.names:
        raise InvalidInputError(
            f"The change made other blocks ({', '.join(after.names)}) than there were ({', '.join(before.names)}); "
            "compare the two with jacobian_spectrum instead."
        )

    def is_same(name: str) -> bool:
        left, right = before.singular_values[name], after.singular_values[name]
        return left.shape == right.shape and bool((left - right).abs().max() <= 1e-6 * left.max())

    return SurgeryEffect(before, after, tuple(name for name in before.blocks if not is_same(name)))
