"""The theorem of the Jacobians view: a network of options, and which hypotheses of the convergence theorem it meets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

from skiplens.base import Randomness, in_words
from skiplens.explorer.view import Check, Drawing, Values
from skiplens.explorer.written import snippet, worded
from skiplens.jacobians.hypotheses import Case, CheckedHypothesis, CostFacts, Description, FreeMap, Skip, descriptions
from skiplens.jacobians.hypotheses.conditions import check, largest_gain, regularity_checks, what_follows
from skiplens.jacobians.hypotheses.report import verdict_bars
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import CrossEntropy, SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise, SkipMap
from skiplens.jacobians.systems.norms import BatchNorm
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation, WeightNormalised
from skiplens.plots.figure import Figure, Line, Reference, numbers
from skiplens.zoo.weight_laws import gaussian

PAPER = (
    "MacDonald, Valmadre, Saratchandran and Lucey 2023, On skip connections and normalisation layers in deep "
    "optimisation, as corrected."
)


def draw_theorem(values: Values) -> Drawing:
    """The hypotheses of the convergence theorem, one by one."""
    options = TheoremOptions(**{entry.name: values[entry.name] for entry in fields(TheoremOptions)})
    changed = (entry for entry in fields(options) if getattr(options, entry.name) != entry.default)
    given = ", ".join(f"{entry.name}={getattr(options, entry.name)!r}" for entry in changed)
    case = case_of(options)
    checks, follows = check(case), what_follows(case)
    holding, beta, margin = sum(one.holds for one in checks), case.smoothness, _labelled(checks, "G4")
    bars = verdict_bars([one.label for one in checks], [one.verdict for one in checks])
    certified = beta is not None and math.isfinite(beta)
    count = "All" if holding == len(checks) else f"{holding} of"
    says = f"{count} {len(checks)} hypotheses hold. {_certain(checks, follows)}"
    return Drawing(
        figures=(worded("verdicts", *bars), *_certified_by_blocks(options)),
        says=says,
        facts=(
            ("hypotheses that hold", f"{holding} of {len(checks)}"),
            (
                "margin of the branches",
                in_words(margin.number) if margin.holds and margin.number is not None else "none",
            ),
            ("certified smoothness β", in_words(beta) if certified and beta is not None else "none"),
            ("largest certified step", in_words(2 / beta) if certified and beta else "none"),
        ),
        checks=tuple(map(_check, checks)),
        code=snippet("theorem", given=given),
        notes=(
            f"Theorems 4.5, 4.7 and 5.1 of {PAPER}",
            "Hardly any network in use meets all hypotheses; one that fails is no fault, only no guarantee.",
            *((follows,) if follows not in says else ()),
            "The first loss is taken to be that of outputs that are all zero, as with zero weights.",
        ),
    )


def _labelled(checks: Sequence[CheckedHypothesis], label: str) -> CheckedHypothesis:
    return next(one for one in checks if one.label == label)


def _certain(checks: Sequence[CheckedHypothesis], follows: str) -> str:
    """What is certain if nothing that matters fails."""
    if not follows.startswith("All hypotheses"):
        return follows
    # The library's sentence is for reports: it tells all conditions, which stand in the small print here.
    sure = "The loss has no bad valleys: every critical point is a global minimum"
    if not _labelled(checks, "G6").holds:
        return f"{sure}. But the step is too large to be sure that the loss falls."
    return (
        f"{sure}, and the loss falls at every step. That it arrives there is not proved: the printed theorem is false."
    )


def _check(one: CheckedHypothesis) -> Check:
    state = "unknown" if one.verdict == "cannot be decided" else one.verdict
    why = f"{one.reason[:1].upper()}{one.reason[1:]}".removesuffix(".")
    return Check(state, f"{one.hypothesis.statement} ({one.label})", f"{why}. {one.change}".strip())


FEATURES = 16
_HIDDEN = 16


@dataclass(frozen=True)
class TheoremOptions:
    """What the network is made of: one field for each control of the theorem, whose sentence says what it means.

    The defaults meet every hypothesis of the theorem.
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

    def width_after(self, block: int) -> int:
        """Features after so many blocks."""
        return FEATURES + {"constant": 0, "shrinking": -1, "growing": 1}[self.widths] * block


def case_of(options: TheoremOptions) -> Case:
    """The network, its data, its cost and its step as the checks want them."""
    data, cost = gaussian((FEATURES, options.samples), 1.0, Randomness(0).child("data").torch()), _cost(options)
    outputs = torch.zeros(options.width_after(options.blocks), options.samples, dtype=torch.float64)
    first: Description = FreeMap("first", FEATURES, FEATURES, 3, 3)
    if options.first_layer != "convolution":
        kind = EntryNormalised if options.first_layer == "entry" else Free
        first = Affine(kind(FEATURES, FEATURES), name="first")
    case = Case(
        layers=(first, *(layer for block in range(options.blocks) for layer in _block(options, block))),
        data=descriptions.DataFacts.of_matrix(data),
        cost=cost,
        sublevel=float(cost.cost(outputs)) if cost.cost else math.inf,
        first_weights=gaussian((FEATURES * FEATURES,), 1.0, Randomness(0).child("first").torch()),
    )
    beta = case.smoothness
    return replace(case, step=float(options.step) / (beta if beta and beta < math.inf else 1.0))


def _block(options: TheoremOptions, number: int) -> list[Description]:
    """A branch of two matrices with its shortcut, and what follows them."""
    inputs, outputs = options.width_after(number), options.width_after(number + 1)
    name, phi = f"block {number + 1}", NONLINEARITIES[options.nonlinearity]
    inner = Affine(_matrix(options, _HIDDEN, inputs, 1.0), name=f"{name} inner")
    outer = Affine(_matrix(options, outputs, _HIDDEN, 1 - options.margin), name=f"{name} outer")
    opening = [Elementwise(NONLINEARITIES["tanh"], inputs, f"{name} opening")] if options.opening else []
    norm = [BatchNorm(_HIDDEN, name=f"{name} batch norm")] if options.batch_norm == "branch" else []
    branch = [*opening, inner, *norm, Elementwise(phi, _HIDDEN, f"{name} {phi.name}"), outer]
    between = [BatchNorm(outputs, name=f"batch norm after {name}")] if options.batch_norm == "between" else []
    if options.shortcut == "none":
        return [*branch, *between]
    return [descriptions.ResidualLayer(name, _skip(options, inputs, outputs), tuple(branch)), *between]


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


_BLOCKS = tuple(range(1, 9))


def _certified_by_blocks(options: TheoremOptions) -> list[Figure]:
    """The kept slope and the largest certified step against the number of blocks, where there are any."""
    cases = [case_of(replace(options, blocks=blocks)) for blocks in _BLOCKS]
    kept = [_kept_by_blocks(case, blocks) for case, blocks in zip(cases, _BLOCKS, strict=True)]
    steps = [2 / case.smoothness if case.smoothness else math.nan for case in cases]
    here = Reference(float(options.blocks), f"{options.blocks} blocks", "x")
    return [
        worded(name, Line(numbers(_BLOCKS), numbers(heights)), here)
        for name, heights in (("certified_slope", kept), ("certified_step", steps))
        if any(height > 0 for height in heights)
    ]


def _kept_by_blocks(case: Case, blocks: int) -> float:
    """∏ (1 − |Jg|)² with the bound of |Jg| that holds for all parameters; 0 where theorem 4.7 does not apply."""
    if not all(one.holds for one in regularity_checks(case)):
        return 0.0
    gain, _, _ = largest_gain(case)
    return (1 - gain) ** (2 * blocks)
