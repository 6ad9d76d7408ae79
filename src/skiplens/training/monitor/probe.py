"""The samples that a monitor looks at, and the loss whose curvature it follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch, Inputs, as_batch, map_tensors
from skiplens.derivatives.outputs import main_output
from skiplens.derivatives.samples import samples_of
from skiplens.lenses.curvature.fitting_loss import fitted

LABELS = "labels"


@dataclass(frozen=True)
class Probe:
    """Inputs, and targets where there are any.

    Attributes:
        inputs: What the model is called with.
        targets: What its outputs are compared with; None if only inputs were handed over.
        loss: Name of the loss or a function of outputs and targets; None: the one that fits, or the model's own.
        model_has_loss: Whether the model returns its loss when it is given labels.
    """

    inputs: Inputs
    targets: Tensor | None
    loss: Any = None
    model_has_loss: bool = False

    @classmethod
    def of(cls, probe: Any, loss: Any, samples: int) -> "Probe":
        """The first samples of inputs, of `(inputs, targets)`, or of a mapping that may hold labels."""
        if isinstance(probe, Mapping):
            arguments = dict(probe)
            labels = arguments.pop(LABELS, None)
            batch = as_batch((arguments, _counting(arguments) if labels is None else labels), "probe").first(samples)
            has_labels = labels is not None
            return cls(batch.inputs, batch.targets if has_labels else None, loss, has_labels and loss is None)
        if isinstance(probe, Tensor):
            return cls(as_batch((probe, probe), "probe").first(samples).inputs, None, loss)
        batch = as_batch(probe, "probe").first(samples)
        return cls(batch.inputs, batch.targets, loss)

    @property
    def samples(self) -> int:
        """How many samples are looked at."""
        return samples_of(self.inputs).count

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> "Probe":
        """The probe on a device, its floating tensors in `dtype`."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        targets = None if self.targets is None else moved(self.targets)
        return Probe(map_tensors(moved, self.inputs), targets, self.loss, self.model_has_loss)

    def loss_and_data(self, outputs: Any) -> tuple[Any, Any]:
        """The loss and the data that a Hessian is taken of."""
        if self.targets is None:
            raise InvalidInputError(
                "The probe has inputs only, and a curvature needs targets. Hand over (inputs, targets), or a mapping "
                "with labels."
            )
        batch = Batch(self.inputs, self.targets)
        if self.model_has_loss:
            return None, batch
        if self.loss is not None:
            return self.loss, batch
        return fitted(main_output(outputs), batch)


def _counting(arguments: Mapping[str, Any]) -> Any:
    """The tensor that counts the samples of arguments without labels."""
    return next((value for value in arguments.values() if isinstance(value, Tensor) and value.ndim), None)
