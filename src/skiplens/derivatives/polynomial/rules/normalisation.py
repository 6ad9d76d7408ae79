"""Normalisations: the centring is linear and acts on every coefficient, the scale is a constant."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.derivatives.polynomial.rules.rule import OfOne
from skiplens.derivatives.polynomial.stacks import over_entries, plus_constant
from skiplens.derivatives.polynomial.step import Step


@dataclass(frozen=True, eq=False)
class Normalisation:
    """(x − centre(x)) · scale · weight + bias, over groups of numbers.

    Attributes:
        shape: Shape of x in which a group is the whole of `axes`.
        axes: Axes over which mean and variance are taken.
        centred: Whether the mean is removed.
        epsilon: Added to the variance.
        weight: Learned factor, to be broadcast against x, or None.
        bias: Learned shift, to be broadcast against x, or None.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    centred: bool
    epsilon: float
    weight: Tensor | None
    bias: Tensor | None

    def centre(self, x: Tensor) -> Tensor:
        """X in groups, without the mean of its group."""
        grouped = x.reshape(self.shape)
        return grouped - grouped.mean(self.axes, keepdim=True) if self.centred else grouped

    def scale(self, x: Tensor) -> Tensor:
        """One over the standard deviation of each group."""
        return (self.centre(x).square().mean(self.axes, keepdim=True) + self.epsilon).rsqrt()

    def scaled(self, x: Tensor, scale: Tensor) -> Tensor:
        """X centred, times a scale and the learned factor."""
        result = (self.centre(x) * scale).reshape(x.shape)
        return result if self.weight is None else result * self.weight

    def __call__(self, x: Tensor) -> Tensor:
        """X normalised."""
        result = self.scaled(x, self.scale(x))
        return result if self.bias is None else result + self.bias


@dataclass(frozen=True)
class Normalising(OfOne):
    """Statistics of the argument itself: layer, group, instance and root-mean-square norms, batch norm in training."""

    curves = True

    @abstractmethod
    def read(self, step: Step) -> Normalisation:
        """The normalisation that a step carries out."""

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry centred and times the frozen scale; the learned shift goes to entry 0."""
        form, x = self.read(step), step.arguments[0]
        scale = form.scale(x)
        stack = over_entries(lambda entry: form.scaled(entry, scale), (step.stack,))
        return plus_constant(stack, form.bias) if with_constants and form.bias is not None else stack


@dataclass(frozen=True)
class LayerNorm(Normalising):
    """``layer_norm(x, shape, weight, bias, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are the last axes."""
        x, shape = step.arguments[:2]
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        weight, bias, epsilon = step.argument(2), step.argument(3), step.argument(4, 1e-5)
        return Normalisation(tuple(x.shape), axes, True, epsilon, weight, bias)


@dataclass(frozen=True)
class RMSNorm(Normalising):
    """``rms_norm(x, shape, weight, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are the last axes; nothing is centred."""
        x, shape = step.arguments[:2]
        epsilon = step.argument(3)
        epsilon = torch.finfo(x.dtype).eps if epsilon is None else epsilon
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        return Normalisation(tuple(x.shape), axes, False, epsilon, step.argument(2), None)


@dataclass(frozen=True)
class GroupNorm(Normalising):
    """``group_norm(x, groups, weight, bias, epsilon)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are some channels of one sample."""
        x, groups = step.arguments[:2]
        weight, bias = (channels(step.argument(position), x) for position in (2, 3))
        return Normalisation((len(x), groups, -1), (2,), True, step.argument(4, 1e-5), weight, bias)


@dataclass(frozen=True)
class InstanceNorm(Normalising):
    """``instance_norm(x, weight, bias, mean, variance, own statistics, momentum, epsilon, …)``."""

    def read(self, step: Step) -> Normalisation:
        """Groups are one channel of one sample."""
        x = step.arguments[0]
        weight, bias = (channels(step.argument(position), x) for position in (1, 2))
        return Normalisation(tuple(x.shape), tuple(range(2, x.ndim)), True, step.arguments[7], weight, bias)


@dataclass(frozen=True)
class BatchNorm(Normalising):
    """Batch norm with the statistics of the batch: its centring is a linear operator on the batch.

    Attributes:
        epsilon_at: Position of ε, which the forms of the operation have in different places.
    """

    epsilon_at: int = 7

    def read(self, step: Step) -> Normalisation:
        """Groups are one channel of all samples."""
        x = step.arguments[0]
        weight, bias = (channels(step.argument(position), x) for position in (1, 2))
        axes = (0, *range(2, x.ndim))
        return Normalisation(tuple(x.shape), axes, True, step.arguments[self.epsilon_at], weight, bias)


@dataclass(frozen=True)
class RunningBatchNorm(OfOne):
    """Batch norm with running statistics: a factor for each channel, and a shift that is a constant."""

    curves = False
    is_fresh = True
    epsilon_at: int = 6

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry times the channel's factor; the shift goes to entry 0."""
        weight, bias, mean, variance = (channels(tensor, step.arguments[0]) for tensor in step.arguments[1:5])
        assert mean is not None and variance is not None, "batch norm without batch statistics has running ones"
        factor = (variance + step.arguments[self.epsilon_at]).rsqrt()
        factor = factor if weight is None else factor * weight
        stack = step.scaled(factor)
        shift = -mean * factor if bias is None else bias - mean * factor
        return plus_constant(stack, shift) if with_constants else stack


def channels(vector: Any, x: Tensor) -> Tensor | None:
    """A number for each channel, to be broadcast against x (samples, channels, …)."""
    return None if vector is None else vector.reshape(-1, *(1,) * (x.ndim - 2))
