"""The Jacobians view: three topics, each with controls of its own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.base.progress import Progress
from skiplens.explorer.control import Choice, Control, Slider, Switch
from skiplens.explorer.view import Check, Drawing, Values, View
from skiplens.explorer.views.jacobians_matrices import (
    NAMES,
    MeasuredBlocks,
    RandomBlocks,
    RandomLayer,
    log_typical,
    measured_blocks,
    mnist_block,
    range_against_scale,
    shrinking_blocks,
    singular_value_densities,
    through,
    typical_against_depth,
    width_keeping_blocks,
)
from skiplens.explorer.views.jacobians_theorem import (
    THEOREM_CONTROLS,
    TheoremOptions,
    case_of,
    certified_slope,
    certified_step,
    verdicts_by_theorem,
)
from skiplens.jacobians.hypotheses.convergence import check, what_follows
from skiplens.jacobians.hypotheses.facts import Case, CheckedHypothesis

TOPIC = Choice(
    "topic",
    "Look at",
    help="One random layer, whole blocks with different shortcuts, or what the convergence theorem asks for.",
    options=(("layer", "a layer"), ("block", "blocks"), ("theorem", "the theorem")),
    default="layer",
)

MATRIX_CONTROLS: tuple[Control, ...] = (
    Slider(
        "scale",
        "Weight scale s",
        help="How large the weights are: entries have variance s²/width. PyTorch's linear layers start at 0.577.",
        low=0.05,
        high=2.0,
        default=0.577,
        logarithmic=True,
        only_when=("topic", ("layer", "block")),
    ),
    Slider(
        "width",
        "Width",
        help="Features of the layer; the wider, the closer what is drawn comes to the smooth curves.",
        low=20,
        high=300,
        default=200,
        whole=True,
        logarithmic=True,
        only_when=("topic", ("layer", "block")),
    ),
    Slider(
        "depth",
        "Layers in a row",
        help="How many such layers a gradient has to pass on its way back.",
        low=1,
        high=100,
        default=20,
        whole=True,
        only_when=("topic", ("layer",)),
    ),
    Switch(
        "mnist",
        "Measure the MNIST networks",
        help="Also computes the singular values of a block of the paper's convolutional networks; takes some seconds.",
        default=False,
        only_when=("topic", ("block",)),
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights: the same seed draws the same ones.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=("topic", ("layer", "block")),
    ),
)

CONTROLS: tuple[Control, ...] = (TOPIC, *MATRIX_CONTROLS, *THEOREM_CONTROLS)


@dataclass(frozen=True)
class JacobiansView(View):
    """Singular values of layers and blocks, and the checklist of the convergence theorem."""

    name: ClassVar[str] = "jacobians"
    title: ClassVar[str] = "Jacobians"
    lead: ClassVar[str] = (
        "Do the layers keep every direction of the gradient alive, and is gradient descent sure to arrive?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The pictures of the chosen topic."""
        if values["topic"] == "theorem":
            return draw_theorem(values)
        return draw_layer(values) if values["topic"] == "layer" else draw_block(values, measured)

    def measurement(self, values: Values) -> Values | None:
        """Scale and seed, where the MNIST networks are asked for."""
        if values["topic"] != "block" or not values["mnist"]:
            return None
        return {name: values[name] for name in ("scale", "seed")}

    def measure(self, values: Values, progress: Progress) -> MeasuredBlocks:
        """The second block of the paper's networks."""
        return measured_blocks(values["scale"], values["seed"], progress)


PAPER = (
    "MacDonald, Valmadre, Saratchandran and Lucey 2023, On skip connections and normalisation layers in deep "
    "optimisation, as corrected."
)


def draw_layer(values: Values) -> Drawing:
    """Singular values of a random layer with and without a skip."""
    layer = RandomLayer(float(values["scale"]), values["width"], values["depth"], values["seed"])
    return Drawing(
        figures=(singular_value_densities(layer), range_against_scale(layer), typical_against_depth(layer)),
        says=about_layer(layer),
        facts=layer_facts(layer),
        rows=layer_rows(layer),
        code=layer_code(layer),
        notes=(f"The limit of infinite width of figure 1 of {PAPER}",),
    )


def draw_block(values: Values, measured: Any) -> Drawing:
    """Singular values of blocks with different shortcuts."""
    blocks = RandomBlocks(float(values["scale"]), values["width"], values["seed"])
    real = (mnist_block(measured),) if isinstance(measured, MeasuredBlocks) else ()
    return Drawing(
        figures=(shrinking_blocks(blocks), width_keeping_blocks(blocks), *real),
        says=about_blocks(blocks),
        facts=block_facts(blocks),
        code=block_code(blocks, bool(values["mnist"])),
        notes=(f"Random matrices in the place of the convolutions of {PAPER}",),
    )


def draw_theorem(values: Values) -> Drawing:
    """The hypotheses of the convergence theorem, one by one."""
    options = TheoremOptions.of(values)
    case = case_of(options)
    checks, follows = check(case), what_follows(case)
    says = about_theorem(checks, follows)
    figures = (verdicts_by_theorem(checks), certified_slope(options), certified_step(options))
    return Drawing(
        figures=tuple(figure for figure in figures if figure is not None),
        says=says,
        facts=theorem_facts(case, checks),
        checks=tuple(_check(one) for one in checks),
        code=theorem_code(options),
        notes=(
            f"Theorems 4.5, 4.7 and 5.1 of {PAPER}",
            "Hardly any network in use meets all hypotheses; one that fails is no fault, only no guarantee.",
            *((follows,) if follows not in says else ()),
            "The first loss is taken to be that of outputs that are all zero, as with zero weights.",
        ),
    )


def _check(one: CheckedHypothesis) -> Check:
    state = "unknown" if one.verdict == "cannot be decided" else one.verdict
    # the formula en(W) X is a reason too, and no sentence
    reason = f"it is {one.reason}" if one.reason.startswith("en(") else one.reason
    why = f"{reason[:1].upper()}{reason[1:]}".removesuffix(".")
    return Check(state, f"{one.label}: {one.hypothesis.statement}", f"{why}. {one.change}".strip())


_LAYER = """\
import torch
from skiplens.base.randomness import Randomness
from skiplens.papers.macdonald2023_regularity.fig1 import SingularValueLaw
W = {scale} / {width}**0.5 * torch.randn({width}, {width}, generator=Randomness({seed}).torch(), dtype=torch.float64)
result = torch.linalg.svdvals(torch.eye({width}) + W)
smallest, largest = SingularValueLaw({scale}, has_skip=True).support
"""

_BLOCK = """\
import torch
from skiplens.explorer.views.jacobians_matrices import RandomBlocks
blocks = RandomBlocks(scale={scale}, width={width}, seed={seed})
result = {{name: torch.linalg.svdvals(jacobian) for name, jacobian in blocks.shrinking().items()}}
"""

_MNIST = """
from skiplens.explorer.views.jacobians_matrices import measured_blocks
measured = measured_blocks(scale={scale}, seed={seed}).singular_values
"""

_THEOREM = """\
from skiplens.explorer.views.jacobians_theorem import TheoremOptions, case_of
from skiplens.jacobians.hypotheses import check
result = {{one.label: one.verdict for one in check(case_of(TheoremOptions({options})))}}
"""


def layer_code(layer: RandomLayer) -> str:
    """The singular values of I + W, and the range they have at infinite width."""
    return _LAYER.format(scale=layer.scale, width=layer.width, seed=layer.seed)


def block_code(blocks: RandomBlocks, with_mnist: bool) -> str:
    """The singular values of the blocks that shrink, and those measured if they were asked for."""
    drawn = _BLOCK.format(scale=blocks.scale, width=blocks.width, seed=blocks.seed)
    return drawn + _MNIST.format(scale=blocks.scale, seed=blocks.seed) if with_mnist else drawn


def theorem_code(options: TheoremOptions) -> str:
    """The verdict on each hypothesis."""
    changed = (entry for entry in fields(options) if getattr(options, entry.name) != entry.default)
    return _THEOREM.format(options=", ".join(f"{entry.name}={getattr(options, entry.name)!r}" for entry in changed))


def about_layer(layer: RandomLayer) -> str:
    """What the skip does to a typical direction, once and after all layers."""
    without, with_skip = (math.exp(log_typical(layer.scale, skip)) for skip in NAMES)
    start = f"Alone, a layer with weights of scale {layer.scale:g} multiplies a typical direction by {without:.2g}"
    deep = f"after {layer.depth} layers {through(layer.scale, False, layer.depth):.2g} is left of it"
    if layer.scale < 1:
        low = layer.law(True).support[0]
        return (
            f"{start}, and {deep}. With a skip the factor is 1 at any depth, and no direction is multiplied by less "
            f"than {low:.2g} in one layer."
        )
    return (
        f"{start}, and {deep}. Weights of a scale of 1 or more are too large for a skip to help: its typical factor is "
        f"{with_skip:.2g} and the smallest singular values of I + W reach zero."
    )


def layer_facts(layer: RandomLayer) -> tuple[tuple[str, str], ...]:
    """Smallest and typical values, and what is left after all layers."""
    smallest = {skip: float(values[-1]) for skip, values in layer.singular_values.items()}
    left = {skip: through(layer.scale, skip, layer.depth) for skip in NAMES}
    return tuple(
        fact
        for skip, name in NAMES.items()
        for fact in (
            (f"smallest singular value of {name}", f"{smallest[skip]:.3g}"),
            (f"typical factor of {name}", f"{math.exp(log_typical(layer.scale, skip)):.3g}"),
            (f"{name} after {layer.depth} layers", f"{left[skip]:.3g}"),
        )
    )


def layer_rows(layer: RandomLayer) -> tuple[dict[str, str | float], ...]:
    """What was drawn beside the limit of infinite width."""
    return tuple(row for skip, name in NAMES.items() for row in (_drawn(layer, skip, name), _limit(layer, skip, name)))


def about_blocks(blocks: RandomBlocks) -> str:
    """The medians of the blocks that shrink, and what the identity saves."""
    medians = [f"{name} {_median(jacobian):.2g}" for name, jacobian in blocks.shrinking().items()]
    chain, residual = (_smallest(jacobian) for jacobian in blocks.keeping_width().values())
    return (
        f"Where the width shrinks, the median singular value is: {', '.join(medians)}. Where it is kept, the smallest "
        f"is {chain:.2g} in the chain (ReLU switches half of the hidden units off) and {residual:.2g} with an identity "
        "skip."
    )


def block_facts(blocks: RandomBlocks) -> tuple[tuple[str, str], ...]:
    """The smallest singular value of each block that shrinks."""
    return tuple((f"smallest, {name}", f"{_smallest(jacobian):.3g}") for name, jacobian in blocks.shrinking().items())


def about_theorem(checks: Sequence[CheckedHypothesis], follows: str) -> str:
    """How many hypotheses hold, and what is certain if nothing that matters fails."""
    holding = sum(one.holds for one in checks)
    count = "All" if holding == len(checks) else f"{holding} of"
    return f"{count} {len(checks)} hypotheses hold. {_certain(checks, follows)}"


def theorem_facts(case: Case, checks: Sequence[CheckedHypothesis]) -> tuple[tuple[str, str], ...]:
    """Counts, and the two numbers that a guarantee is made of."""
    beta, margin = case.smoothness, next(one for one in checks if one.label == "G4")
    certified = beta is not None and math.isfinite(beta)
    return (
        ("hypotheses that hold", f"{sum(one.holds for one in checks)} of {len(checks)}"),
        ("margin of the branches", f"{margin.number:.3g}" if margin.holds else "none"),
        ("certified smoothness β", f"{beta:.3g}" if certified else "none"),
        ("largest certified step", f"{2 / beta:.3g}" if certified and beta else "none"),
    )


def _certain(checks: Sequence[CheckedHypothesis], follows: str) -> str:
    if not follows.startswith("All hypotheses"):
        return follows
    # The library's sentence is for reports: it tells all conditions, which stand in the small print here.
    sure = "The loss has no bad valleys: every critical point is a global minimum"
    step = next(one for one in checks if one.label == "G6")
    if not step.holds:
        return f"{sure}. But the step is too large to be sure that the loss falls."
    return (
        f"{sure}, and the loss falls at every step. That it arrives there is not proved: the printed theorem is false."
    )


def _drawn(layer: RandomLayer, skip: bool, name: str) -> dict[str, str | float]:
    values = layer.singular_values[skip]
    typical = values.log().mean().exp().item()
    return _row(name, f"width {layer.width}", (values[-1].item(), values.mean().item(), typical, values[0].item()))


def _limit(layer: RandomLayer, skip: bool, name: str) -> dict[str, str | float]:
    law = layer.law(skip)
    (low, high), mean = law.support, law.mean_of(lambda sigma: sigma)
    return _row(name, "infinite width", (low, mean, math.exp(log_typical(layer.scale, skip)), high))


def _row(name: str, width: str, numbers: tuple[float, ...]) -> dict[str, str | float]:
    columns = ("smallest", "mean", "geometric mean", "largest")
    return {"matrix": name, "at": width, **dict(zip(columns, numbers, strict=True))}


def _median(jacobian: Tensor) -> float:
    return _without_rounding(torch.linalg.svdvals(jacobian)).median().item()


def _smallest(jacobian: Tensor) -> float:
    return _without_rounding(torch.linalg.svdvals(jacobian))[-1].item()


def _without_rounding(values: Tensor) -> Tensor:
    """The values, with 0 where there is nothing but rounding."""
    return values * (values > len(values) * torch.finfo(values.dtype).eps * values[0])
