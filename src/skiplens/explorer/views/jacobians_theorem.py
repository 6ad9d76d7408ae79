"""A network of options, as the convergence theorem sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

from skiplens.base.randomness import Randomness
from skiplens.explorer.control import Choice, Control, Slider, Switch
from skiplens.explorer.view import Values
from skiplens.jacobians.hypotheses.conditions import largest_gain, regularity_checks
from skiplens.jacobians.hypotheses.descriptions import Description, FreeMap, ResidualLayer, Skip
from skiplens.jacobians.hypotheses.facts import Case, CheckedHypothesis, CostFacts, DataFacts
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import CrossEntropy, SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise, SkipMap
from skiplens.jacobians.systems.norms import BatchNorm
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation, WeightNormalised
from skiplens.plots.figure import Bars, Figure, Line, Reference, numbers
from skiplens.zoo.weight_laws import gaussian

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


_HERE = ("topic", ("theorem",))

THEOREM_CONTROLS: tuple[Control, ...] = (
    Choice(
        "first_layer",
        "First layer",
        help="The theorem wants each entry of the first matrix kept below one; a convolution reaches too few matrices.",
        options=(("entry", "entries normalised"), ("plain", "plain"), ("convolution", "convolution")),
        default="entry",
        only_when=_HERE,
    ),
    Choice(
        "branch_weights",
        "Branch weights",
        help="Normalised matrices stay small whatever the weights do; free ones can grow without bound.",
        options=(("normalised", "normalised"), ("free", "free")),
        default="normalised",
        only_when=_HERE,
    ),
    Choice(
        "nonlinearity",
        "Nonlinearity",
        help="It must be smooth and never steeper than one: ReLU has a kink, GELU is too steep in places.",
        options=(("tanh", "tanh"), ("softplus", "softplus"), ("gelu", "GELU"), ("relu", "ReLU")),
        default="tanh",
        only_when=_HERE,
    ),
    Choice(
        "shortcut",
        "Shortcut",
        help="It has to keep all lengths (all singular values one) and must not be trained.",
        options=(
            ("isometric", "keeps lengths"),
            ("padded", "pool + zero channels"),
            ("projection", "trained projection"),
            ("none", "none"),
        ),
        default="isometric",
        only_when=_HERE,
    ),
    Choice(
        "widths",
        "Widths",
        help="Behind the first layer no layer may have more outputs than inputs.",
        options=(("constant", "constant"), ("shrinking", "shrinking"), ("growing", "growing")),
        default="constant",
        only_when=_HERE,
    ),
    Choice(
        "batch_norm",
        "Batch norm",
        help="Between blocks it loses a direction of each unit; inside a branch it makes the branch steep.",
        options=(("none", "none"), ("branch", "in the branches"), ("between", "between blocks")),
        default="none",
        only_when=_HERE,
    ),
    Switch(
        "opening",
        "Branches start with tanh",
        help="Bounds what enters a branch; with a plain first layer this is the network whose convergence is proved.",
        default=False,
        only_when=_HERE,
    ),
    Slider(
        "blocks",
        "Residual blocks",
        help="How many blocks follow the first layer.",
        low=1,
        high=8,
        default=3,
        whole=True,
        only_when=_HERE,
    ),
    Slider(
        "margin",
        "Margin δ",
        help="Normalised branches multiply no direction by more than 1 − δ, so that none can cancel its skip.",
        low=0.0,
        high=0.9,
        default=0.2,
        step=0.05,
        only_when=_HERE,
    ),
    Slider(
        "samples",
        "Training samples",
        help="Samples of 16 features each: with more than 16 they cannot be independent.",
        low=2,
        high=32,
        default=8,
        whole=True,
        only_when=_HERE,
    ),
    Choice(
        "cost",
        "Cost",
        help="What training minimises; it has to be convex with a gradient that does not jump.",
        options=(("square", "square"), ("cross_entropy", "cross-entropy"), ("absolute", "absolute error")),
        default="square",
        only_when=_HERE,
    ),
    Slider(
        "step",
        "Step size × β",
        help="The step of gradient descent in units of 1/β, where β bounds the curvature; below 2 it is certified.",
        low=0.1,
        high=10.0,
        default=1.0,
        logarithmic=True,
        only_when=_HERE,
    ),
)

BLOCKS = tuple(range(1, 9))

THEOREMS = {"4.5": "smoothness (4.5)", "4.7": "regularity (4.7)", "5.1": "convergence (5.1)"}

VERDICTS = ("holds", "fails", "cannot be decided")


def verdicts_by_theorem(checks: Sequence[CheckedHypothesis]) -> Figure:
    """How many hypotheses of each theorem hold."""
    counted = {
        verdict: [sum(one.hypothesis.theorem == theorem and one.verdict == verdict for one in checks)
                  for theorem in THEOREMS]
        for verdict in VERDICTS
    }  # fmt: skip
    labels = tuple(THEOREMS.values())
    return Figure(
        name="verdicts",
        title="Hypotheses that hold",
        caption="Six hypotheses of each theorem. All of smoothness and regularity together make every critical point "
        "a global minimum; one that fails leaves nothing certified, though training may well work.",
        x_label="theorem",
        y_label="hypotheses",
        marks=tuple(Bars(labels, numbers(counts), verdict) for verdict, counts in counted.items() if any(counts)),
    )


def certified_step(options: TheoremOptions) -> Figure | None:
    """The largest certified step against the number of blocks; None where no smoothness is certified."""
    steps = [2 / beta if beta else math.nan for beta in map(_smoothness, _of_all_depths(options))]
    if not any(step > 0 for step in steps):
        return None
    return Figure(
        name="certified_step",
        title="Largest step that is certified",
        caption="Steps of gradient descent below this number lower the loss from any weights whatsoever. It is the "
        "price of a worst case: in practice far larger steps work.",
        x_label="residual blocks",
        y_label="step 2/β",
        marks=(
            Line(numbers(BLOCKS), numbers(steps)),
            Reference(float(options.blocks), f"{options.blocks} blocks", "x"),
        ),
        y_log=True,
    )


def certified_slope(options: TheoremOptions) -> Figure | None:
    """The share of λ(DF) that all blocks together are certified to keep; None where theorem 4.7 does not apply."""
    kept = [kept_by_blocks(each) for each in _of_all_depths(options)]
    if not any(share > 0 for share in kept):
        return None
    return Figure(
        name="certified_slope",
        title="Slope that the blocks are certified to keep",
        caption="Each block keeps at least δ² of the squared slope that reaches it, so the guarantee fades with depth; "
        "a larger margin δ (weaker branches) keeps more of it.",
        x_label="residual blocks",
        y_label="kept share of λ(DF)",
        marks=(Line(numbers(BLOCKS), numbers(kept)), Reference(float(options.blocks), f"{options.blocks} blocks", "x")),
        y_log=True,
    )


def kept_by_blocks(options: TheoremOptions) -> float:
    """∏ (1 − |Jg|)² with the bound of |Jg| that holds for all parameters; 0 where theorem 4.7 does not apply."""
    case = case_of(options)
    if not all(one.holds for one in regularity_checks(case)):
        return 0.0
    gain, _, _ = largest_gain(case)
    return (1 - gain) ** (2 * options.blocks)


def _smoothness(options: TheoremOptions) -> float | None:
    return case_of(options).smoothness


def _of_all_depths(options: TheoremOptions) -> list[TheoremOptions]:
    return [replace(options, blocks=blocks) for blocks in BLOCKS]
