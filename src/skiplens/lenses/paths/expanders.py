"""From a network and what is asked of it to stacks of coefficients, one row of numbers a sample."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.derivatives.polynomial import (
    BlockDerivatives,
    Counting,
    Plan,
    expand_signal,
    expand_tangent,
    frozen_plan,
    pull_back,
    tangent_plan,
)
from skiplens.lenses.paths.options import PathOptions
from skiplens.residual import ResidualNetwork

Direction = Tensor | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples of a batch with the network taken apart for them.

    Attributes:
        network: The network.
        samples: Which samples of the whole batch these are.
    """

    network: ResidualNetwork
    samples: slice

    @property
    def count(self) -> int:
        """How many samples."""
        return self.samples.stop - self.samples.start


class Expander(ABC):
    """Something that is a sum over paths."""

    plan: Plan

    @abstractmethod
    def expand(self, counting: Counting) -> Tensor:
        """The stack of shape (entries, samples, numbers)."""

    def total(self) -> Tensor:
        """The sum over all paths, of shape (samples, numbers)."""
        return self.expand(BlockDerivatives(derivatives=False))[0]


@dataclass(frozen=True, eq=False)
class Signal(Expander):
    """The output itself."""

    plan: Plan
    samples: int
    options: PathOptions

    @classmethod
    def of(cls, chunk: Chunk, options: PathOptions) -> "Signal":
        """The output of a chunk's network."""
        return cls(frozen_plan(chunk.network, _output(chunk.network)), chunk.count, options)

    def expand(self, counting: Counting) -> Tensor:
        """The output's stack."""
        return centred_rows(expand_signal(self.plan, counting).stack, self.samples, self.options)


@dataclass(frozen=True, eq=False)
class Jacobian(Expander):
    """The derivative of the output along a direction of the inputs."""

    plan: Plan
    samples: int
    options: PathOptions
    directions: Mapping[str, Tensor]

    @classmethod
    def of(cls, chunk: Chunk, options: PathOptions, direction: Direction, randomness: Randomness) -> "Jacobian":
        """The derivative along the given direction, or along one drawn from a standard normal distribution."""
        plan = tangent_plan(chunk.network, _output(chunk.network))
        if direction is not None:
            drawn = {plan.sources[0].name: _given(direction, plan, chunk)}
        else:
            drawn = {node.name: _drawn(node, chunk, randomness.child(node.name)) for node in plan.sources}
        return cls(plan, chunk.count, options, drawn)

    def expand(self, counting: Counting) -> Tensor:
        """The derivative's stack."""
        return centred_rows(expand_tangent(self.plan, counting, self.directions).stack, self.samples, self.options)


@dataclass(frozen=True, eq=False)
class Gradient(Expander):
    """The gradient by the inputs of something whose gradient by the output is given."""

    plan: Plan
    samples: int
    cotangent: Tensor

    @classmethod
    def of(cls, chunk: Chunk, direction: Direction, randomness: Randomness) -> "Gradient":
        """The gradient from the given one by the output, or from one drawn from a standard normal distribution."""
        output = _output(chunk.network)
        plan = tangent_plan(chunk.network, output)
        if direction is None:
            return cls(plan, chunk.count, _drawn(output, chunk, randomness.child("output")))
        return cls(plan, chunk.count, fitting(direction, output, chunk, "the output"))

    def expand(self, counting: Counting) -> Tensor:
        """The stacks of all sources side by side."""
        found = {one.name: rows(one.stack, self.samples) for one in pull_back(self.plan, counting, self.cotangent)}
        longest = max(len(stack) for stack in found.values())
        stacks = [torch.nn.functional.pad(s, (0, 0, 0, 0, 0, longest - len(s))) for s in found.values()]
        same = {stack.shape[1] for stack in stacks}
        return torch.cat(stacks if len(same) == 1 else [s.flatten(1)[:, None] for s in stacks], 2)


def rows(stack: Tensor, samples: int) -> Tensor:
    """The stack with one row of numbers a sample; a single row where the first axis is not the samples."""
    known = stack.ndim > 1 and stack.shape[1] == samples
    return stack.reshape(len(stack), samples if known else 1, -1)


def centred_rows(stack: Tensor, samples: int, options: PathOptions) -> Tensor:
    """The rows of a stack without the means that the options remove from each entry."""
    if options.centre:
        stack = stack - stack.mean(-1, keepdim=True)
    found = rows(stack, samples)
    return found - found.mean(1, keepdim=True) if options.centre_samples else found


def fitting(direction: Tensor, node: fx.Node, chunk: Chunk, what: str) -> Tensor:
    """The part of a direction that belongs to a chunk's samples, in the form of a node's value."""
    value = node.meta["val"]
    part = direction[chunk.samples] if direction.ndim and len(direction) >= chunk.samples.stop else direction
    if part.shape != value.shape:
        raise InvalidInputError(
            f"direction has shape {tuple(direction.shape)}; it must have the shape of {what}, {tuple(value.shape)}."
        )
    return part.to(value.device, value.dtype)


def _given(direction: Tensor, plan: Plan, chunk: Chunk) -> Tensor:
    if len(plan.sources) > 1:
        names = ", ".join(node.name for node in plan.sources)
        raise InvalidInputError(
            f"direction is one tensor, but the signal starts in {len(plan.sources)} places ({names}). "
            "Leave it out for a random direction in all of them, or wrap the model so that it takes one input."
        )
    return fitting(direction, plan.sources[0], chunk, "the input")


def _drawn(node: fx.Node, chunk: Chunk, randomness: Randomness) -> Tensor:
    """Normal numbers in the form of a node's value; each sample has its own stream, whatever chunk it is in."""
    value = node.meta["val"]
    if value.ndim and value.shape[0] == chunk.count:
        numbers = range(chunk.samples.start, chunk.samples.stop)
        parts = [_normal(value.shape[1:], randomness.child(number)) for number in numbers]
        drawn = torch.stack(parts)
    else:
        drawn = _normal(value.shape, randomness.child("all", chunk.samples.start))
    return drawn.to(value.device, value.dtype)


def _normal(shape: tuple[int, ...], randomness: Randomness) -> Tensor:
    return torch.randn(shape, generator=randomness.torch(), dtype=torch.float64)


def _output(network: ResidualNetwork) -> fx.Node:
    return network.node(network.output)
