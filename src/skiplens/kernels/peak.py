"""A kernel at equal inputs, in closed form: its size, its diagonal, and whether a dtype can hold it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.kernels.inputs import Directions


@dataclass(frozen=True, eq=False)
class Peak:
    """k(1) in two factors, so that no depth overflows.

    Attributes:
        value: k(1), divided by exp(`log_scale`).
        log_scale: Logarithm of the scale of k.
    """

    value: Tensor
    log_scale: Tensor

    def scaled_length(self, inputs: Directions) -> Float[Tensor, " samples"]:
        """‖x‖/√d times the root of the scale, in float64; the kernel is the product of two of these and k/scale."""
        return inputs.length.double() * (self.log_scale / 2).exp().to(inputs.length.device)

    def diagonal(self, inputs: Directions) -> Float[Tensor, " samples"]:
        """The kernel of each input with itself."""
        self.require_representable(inputs.unit.dtype)
        value = self.value.to(inputs.unit.device)
        return (self.scaled_length(inputs).square() * value).to(inputs.unit.dtype)

    def require_representable(self, dtype: torch.dtype) -> None:
        """Refuse a kernel whose value at inputs of ‖x‖² = d is beyond `dtype`."""
        size = max(float(self.value.detach().abs()), 1e-300)
        largest = float(self.log_scale.detach()) + math.log(size)
        if largest >= math.log(torch.finfo(dtype).max):
            raise InvalidInputError(
                f"The kernel is 10^{largest / math.log(10):.0f} at inputs of norm √d, beyond "
                f"{str(dtype).removeprefix('torch.')}. Take a smaller branch_scale (about 1/√depth for "
                "branch_depth=2 keeps it of order 1) or ask for values relative to equal inputs with normalise=True."
            )
