"""What a change of the shortcuts does to the singular values, before anything is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.lenses.jacobians.spectrum import jacobian_spectrum
from skiplens.readings import JacobianSpectrum
from skiplens.residual.surgery import add_average_pool_skips

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
