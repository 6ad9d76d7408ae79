"""Extreme eigenvalues and condition number of the tangent kernel, without forming it where it is large."""

import math
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.derivatives.outputs import OutputChoice
from skiplens.derivatives.samples import Inputs
from skiplens.derivatives.tangent.empirical import empirical_ntk
from skiplens.derivatives.tangent.operator import NTKOperator
from skiplens.derivatives.tangent.options import TangentOptions
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs

_LARGEST_DENSE = 2048  # rows; the eigenvalues of a matrix of this size take seconds


@dataclass(frozen=True)
class KernelCondition:
    """The ends of a tangent kernel's spectrum.

    Attributes:
        largest: Largest eigenvalue.
        smallest: Smallest eigenvalue.
        largest_error: An eigenvalue lies at most this far from `largest`.
        smallest_error: An eigenvalue lies at most this far from `smallest`.
        converged: Whether both errors are within the tolerance that was asked for.
        resolution: Eigenvalues below this cannot be told from zero in the kernel's dtype.
    """

    largest: float
    smallest: float
    largest_error: float
    smallest_error: float
    converged: bool
    resolution: float

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue; infinite where the smallest cannot be told from zero."""
        return self.largest / self.smallest if self.smallest > self.resolution else math.inf


def ntk_condition(
    model: nn.Module,
    inputs: Inputs,
    generator: torch.Generator,
    outputs: OutputChoice = "full",
    lanczos: LanczosOptions | None = None,
    **options: Unpack[TangentOptions],
) -> KernelCondition:
    """The largest and smallest eigenvalue of the tangent kernel and its condition number.

    A kernel of at most 2,048 rows is formed and its eigenvalues are exact; a larger one, or any where `lanczos` options
    are given, is only multiplied with. The upper end then converges within tens of products; the lower end of a badly
    conditioned kernel may not, and `converged` says so.

    Args:
        model: Any module.
        inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
        generator: Source of the start vectors.
        outputs: ``"full"``, ``"trace"`` or an index.
        lanczos: Tolerance, products, basis and block size; given, the kernel is not formed.
        **options: See `TangentOptions`.
    """
    operator = NTKOperator(model, inputs, outputs, **options)
    resolution = operator.size * torch.finfo(operator.dtype).eps
    if lanczos is None and operator.size <= _LARGEST_DENSE:
        return _dense(empirical_ntk(model, inputs, None, outputs, **options), operator.size, resolution)
    pairs = extreme_eigenpairs(operator, generator, 1, 1 if operator.size > 1 else 0, lanczos)
    (smallest, largest), (low, high) = pairs.values[[0, -1]].tolist(), pairs.residuals[[0, -1]].tolist()
    return KernelCondition(largest, smallest, high, low, bool(pairs.converged.all()), resolution * largest)


def _dense(kernel: Tensor, size: int, resolution: float) -> KernelCondition:
    values = torch.linalg.eigvalsh(kernel.reshape(size, size))
    smallest, largest = values[0].item(), values[-1].item()
    error = resolution * largest
    return KernelCondition(largest, smallest, error, error, True, error)
