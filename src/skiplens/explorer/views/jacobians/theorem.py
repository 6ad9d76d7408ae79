"""A network of options, as the convergence theorem sees it."""

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

from skiplens.core.randomness import Randomness
from skiplens.explorer.view import Values
from skiplens.residual.initialisation import gaussian
from skiplens.theory.hypotheses import Case, CostFacts, DataFacts, Description, FreeMap, ResidualLayer, Skip
from skiplens.theory.parameterised_systems import (
    NONLINEARITIES,
    Affine,
    BatchNorm,
    Elementwise,
    EntryNormalised,
    Free,
    Parameterisation,
    SkipMap,
    WeightNormalised,
)
from skiplens.theory.smoothness import CrossEntropy, SquareCost

FEATURES = 16
HIDDEN = 16
WINDOW = 3


@dataclass(frozen=True)
class TheoremOptions:
    """What the network is made of; the defaults meet every hypothesis of the theorem.

    Attributes:
        first_layer: Entries normalised as in the theorem, plain as in the repaired network, or a convolution.
        branch_weights: Rows normalised and scaled, or free.
        nonlinearity: Between the two matrices of a branch.
        shortcut: Isometric, a pool with zero channels behind, a trained projection, or none.
        widths: Whether layers keep their width, shrink or grow.
        batch_norm: Nowhere, in each branch, or between the blocks.
        opening: Whether a branch starts with a tanh, as in the repaired network.
        blocks: Residual blocks behind the first layer.
        margin: δ; normalised branches have slopes of at most 1 − δ.
        samples: Training samples of 16 features.
        cost: What is minimised.
        step: Step size of gradient descent in units of 1/β, β being the certified smoothness.
    """

    first_layer: Literal["entry", "plain", "convolution"] = "entry"
    branch_weights: Literal["normalised", "free"] = "normalised"
    nonlinearity: Literal["tanh", "softplus", "gelu", "relu"] = "tanh"
    shortcut: Literal["isometric", "padded", "projection", "none"] = "isometric"
    widths: Literal["constant", "shrinking", "growing"] = "constant"
    batch_norm: Literal["none", "branch", "between"] = "none"
    opening: bool = False
    blocks: int = 3
    margin: float = 0.2
    samples: int = 8
    cost: Literal["square", "cross_entropy", "absolute"] = "square"
    step: float = 1.0

    @classmethod
    def of(cls, values: Values) -> "TheoremOptions":
        """The options that the values of the controls describe."""
        return cls(**{entry.name: values[entry.name] for entry in fields(cls)})

    def width_after(self, block: int) -> int:
        """Features after so many blocks."""
        return FEATURES + {"constant": 0, "shrinking": -1, "growing": 1}[self.widths] * block


def case_of(options: TheoremOptions) -> Case:
    """The network, its data, its cost and its step as the checks want them."""
    data, cost = gaussian((FEATURES, options.samples), 1.0, Randomness(0).child("data").torch()), _cost(options)
    outputs = torch.zeros(options.width_after(options.blocks), options.samples, dtype=torch.float64)
    case = Case(
        layers=(_first(options), *(layer for block in range(options.blocks) for layer in _block(options, block))),
        data=DataFacts.of_matrix(data),
        cost=cost,
        sublevel=float(cost.cost(outputs)) if cost.cost else math.inf,
        first_weights=gaussian((FEATURES * FEATURES,), 1.0, Randomness(0).child("first").torch()),
    )
    beta = case.smoothness
    return replace(case, step=float(options.step) / (beta if beta and beta < math.inf else 1.0))


def _first(options: TheoremOptions) -> Description:
    if options.first_layer == "convolution":
        return FreeMap("first", FEATURES, FEATURES, WINDOW, WINDOW)
    kind = EntryNormalised if options.first_layer == "entry" else Free
    return Affine(kind(FEATURES, FEATURES), name="first")


def _block(options: TheoremOptions, number: int) -> list[Description]:
    inputs, outputs = options.width_after(number), options.width_after(number + 1)
    name, branch = f"block {number + 1}", _branch(options, number)
    between: list[Description] = []
    if options.batch_norm == "between":
        between = [BatchNorm(outputs, name=f"batch norm after {name}")]
    if options.shortcut == "none":
        return [*branch, *between]
    return [ResidualLayer(name, _skip(options, inputs, outputs), tuple(branch)), *between]


def _branch(options: TheoremOptions, number: int) -> list[Description]:
    inputs, outputs = options.width_after(number), options.width_after(number + 1)
    name, phi = f"block {number + 1}", NONLINEARITIES[options.nonlinearity]
    inner = Affine(_matrix(options, HIDDEN, inputs, 1.0), name=f"{name} inner")
    outer = Affine(_matrix(options, outputs, HIDDEN, 1 - options.margin), name=f"{name} outer")
    opening = [Elementwise(NONLINEARITIES["tanh"], inputs, f"{name} opening")] if options.opening else []
    norm = [BatchNorm(HIDDEN, name=f"{name} batch norm")] if options.batch_norm == "branch" else []
    return [*opening, inner, *norm, Elementwise(phi, HIDDEN, f"{name} {phi.name}"), outer]


def _matrix(options: TheoremOptions, outputs: int, inputs: int, size: float) -> Parameterisation:
    if options.branch_weights == "free":
        return Free(outputs, inputs)
    return WeightNormalised(outputs, inputs, factor=size / outputs**0.5)


def _skip(options: TheoremOptions, inputs: int, outputs: int) -> Skip:
    if options.shortcut == "projection":
        return Skip("projection", inputs, outputs, parameters=inputs * outputs)
    if options.shortcut == "padded":
        return Skip("pool with zero channels", inputs, outputs, smallest=0.0, largest=1.0)
    return Skip.of_map(SkipMap.truncation(outputs, inputs))


def _cost(options: TheoremOptions) -> CostFacts:
    classes = options.width_after(options.blocks)
    if options.cost == "absolute":
        return CostFacts("absolute error", is_convex=True, has_lipschitz_gradient=False, is_dominated=False)
    if options.cost == "cross_entropy":
        return CostFacts.of_cost(CrossEntropy(torch.arange(options.samples) % classes, classes))
    targets = gaussian((classes, options.samples), 1.0, Randomness(0).child("targets").torch())
    return CostFacts.of_cost(SquareCost(targets))
