"""The Jacobians view: singular values of random layers and of blocks; the theorem is in a file of its own."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import Progress, Randomness, in_words, silent
from skiplens.data.images import as_floats, sample
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.jacobians_theorem import PAPER, draw_theorem
from skiplens.explorer.written import controls_of, snippet, worded
from skiplens.jacobians.spectrum import jacobian_spectrum
from skiplens.papers.macdonald2023_regularity.fig1 import SingularValueLaw
from skiplens.plots.figure import Band, Figure, Line, Mark, Reference, colour, numbers
from skiplens.zoo.weight_laws import gaussian


@dataclass(frozen=True)
class JacobiansView(View):
    """Singular values of layers and blocks, and the checklist of the convergence theorem."""

    name = "jacobians"
    title = "Jacobians"
    lead = "Do the layers keep every direction of the gradient alive, and is gradient descent sure to arrive?"
    fixed_controls = controls_of("jacobians")

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The pictures of the chosen topic."""
        if values["topic"] == "theorem":
            return draw_theorem(values)
        return _draw_layer(values) if values["topic"] == "layer" else _draw_blocks(values, measured)

    def measurement(self, values: Values) -> Values | None:
        """Scale and seed, where the MNIST networks are asked for."""
        if values["topic"] != "block" or not values["mnist"]:
            return None
        return {name: values[name] for name in ("scale", "seed")}

    def measure(self, values: Values, progress: Progress) -> dict[str, Tensor]:
        """The second block of the paper's networks."""
        return measured_blocks(values["scale"], values["seed"], progress)


_NAMES = {False: "W", True: "I + W"}
_SCALES = torch.linspace(0.05, 2, 40, dtype=torch.float64).tolist()
_DEPTHS = tuple(range(1, 101))


@dataclass(frozen=True)
class RandomLayer:
    """A square matrix W with independent Gaussian entries of variance scale²/width, `depth` times in a row."""

    scale: float = 0.577
    width: int = 200
    depth: int = 20
    seed: int = 0

    @cached_property
    def weights(self) -> Tensor:
        """W."""
        return gaussian((self.width, self.width), self.scale**2 / self.width, Randomness(self.seed).torch())

    @cached_property
    def singular_values(self) -> dict[bool, Tensor]:
        """Those of W and, with a skip, of I + W; descending."""
        identity = torch.eye(self.width, dtype=torch.float64)
        return {has_skip: torch.linalg.svdvals(self.weights + has_skip * identity) for has_skip in _NAMES}

    def law(self, has_skip: bool) -> SingularValueLaw:
        """Their law at infinite width."""
        return SingularValueLaw(self.scale, has_skip)


def log_typical(scale: float, has_skip: bool) -> float:
    """The mean of ln σ at infinite width: what a layer does to the length of a typical direction.

    It is the mean of ln |λ| too, since both are ln |det|/n, and eigenvalues fill a disc (the circular law): of radius s
    around 0, or around 1 with a skip. Over layers it adds up, because determinants multiply.
    """
    without = math.log(scale) - 0.5
    if not has_skip:
        return without
    return 0.0 if scale <= 1 else without + 0.5 / scale**2


def through(scale: float, has_skip: bool, depth: int = 1) -> float:
    """The geometric mean of the singular values of so many layers one after the other."""
    return math.exp(depth * log_typical(scale, has_skip))


def _draw_layer(values: Values) -> Drawing:
    """Singular values of a random layer with and without a skip."""
    layer = RandomLayer(float(values["scale"]), values["width"], values["depth"], values["seed"])
    facts = [
        fact
        for has_skip, name in _NAMES.items()
        for fact in (
            (f"smallest singular value of {name}", in_words(float(layer.singular_values[has_skip][-1]))),
            (f"typical factor of {name}", in_words(through(layer.scale, has_skip))),
            (f"{name} after {layer.depth} layers", in_words(through(layer.scale, has_skip, layer.depth))),
        )
    ]
    return Drawing(
        figures=(_densities(layer), _range_against_scale(layer), _typical_against_depth(layer)),
        says=_about_layer(layer),
        facts=tuple(facts),
        rows=_layer_rows(layer),
        code=snippet("layer", own=layer),
        notes=(f"The limit of infinite width of figure 1 of {PAPER}",),
    )


def _about_layer(layer: RandomLayer) -> str:
    """What the skip does to a typical direction, once and after all layers."""
    opening = (
        f"Alone, a layer with weights of scale {layer.scale:g} multiplies a typical direction by "
        f"{in_words(through(layer.scale, False), 2)}, and after {layer.depth} layers "
        f"{in_words(through(layer.scale, False, layer.depth), 2)} is left of it."
    )
    if layer.scale < 1:
        return (
            f"{opening} With a skip the factor is 1 at any depth, and no direction is multiplied by less "
            f"than {in_words(layer.law(True).support[0], 2)} in one layer."
        )
    return (
        f"{opening} Weights of a scale of 1 or more are too large for a skip to help: its typical factor is "
        f"{in_words(through(layer.scale, True), 2)} and the smallest singular values of I + W reach zero."
    )


def _layer_rows(layer: RandomLayer) -> tuple[dict[str, str | float], ...]:
    """What was drawn beside the limit of infinite width."""
    columns = ("smallest", "mean", "geometric mean", "largest")
    rows: list[dict[str, str | float]] = []
    for has_skip, name in _NAMES.items():
        drawn, law = layer.singular_values[has_skip], layer.law(has_skip)
        found = (drawn[-1], drawn.mean(), drawn.log().mean().exp(), drawn[0])
        (low, high), mean = law.support, law.mean_of(lambda sigma: sigma)
        limits = (low, mean, through(layer.scale, has_skip), high)
        for at, cells in ((f"width {layer.width}", map(float, found)), ("infinite width", limits)):
            rows.append({"matrix": name, "at": at, **dict(zip(columns, cells, strict=True))})
    return tuple(rows)


def _densities(layer: RandomLayer) -> Figure:
    """How the singular values are spread: a histogram of those drawn, and the law at infinite width."""
    highest = 1.05 * layer.law(True).support[1]
    places = torch.linspace(0, highest, 161, dtype=torch.float64)
    marks: list[Mark] = []
    for has_skip, name in _NAMES.items():
        heights = layer.law(has_skip).density(places)
        marks.append(Line(numbers(places), numbers(heights), f"{name}, theory", colour=colour(int(has_skip))))
        steps, shares = histogram(layer.singular_values[has_skip], highest)
        floor = numbers(torch.zeros_like(shares))
        marks.append(Band(numbers(steps), floor, numbers(shares), f"{name}, drawn", colour=colour(int(has_skip))))
    return worded("singular_values", *marks, scale=layer.scale)


def histogram(values: Tensor, highest: float) -> tuple[Tensor, Tensor]:
    """The outline of a histogram: both edges of each bin from 0 to `highest`, and its share over its width twice."""
    bins = min(30, max(8, len(values) // 6))
    shares = torch.histc(values, bins, 0, highest) * (bins / (len(values) * highest))
    edges = torch.linspace(0, highest, bins + 1, dtype=torch.float64)
    return edges.repeat_interleave(2)[1:-1], shares.repeat_interleave(2)


def _range_against_scale(layer: RandomLayer) -> Figure:
    """Smallest, typical and largest singular value of a wide layer against the scale of its weights."""
    marks: list[Mark] = []
    for has_skip, name in _NAMES.items():
        ends = [SingularValueLaw(scale, has_skip).support for scale in _SCALES]
        low, high = (numbers(side) for side in zip(*ends, strict=True))
        typical = numbers([through(scale, has_skip) for scale in _SCALES])
        shade = colour(int(has_skip))
        marks.append(Band(numbers(_SCALES), low, high, f"{name}, range", colour=shade))
        marks.append(Line(numbers(_SCALES), typical, f"{name}, typical", colour=shade))
    return worded("range_against_scale", *marks, Reference(layer.scale, f"s = {layer.scale:g}", axis="x"))


def _typical_against_depth(layer: RandomLayer) -> Figure:
    """What is left of a typical direction after many such layers."""
    lines = [
        Line(numbers(_DEPTHS), numbers([through(layer.scale, has_skip, depth) for depth in _DEPTHS]), name)
        for has_skip, name in _NAMES.items()
    ]
    return worded("typical_against_depth", *lines, Reference(float(layer.depth), f"{layer.depth} layers", axis="x"))


_POOLED = 4  # features that an average pool puts together: a window of 2 × 2 pixels


@dataclass(frozen=True)
class RandomBlocks:
    """Blocks of two random matrices (variance scale²/inputs) with a ReLU between them, at a random input.

    `width` features enter, and a quarter of them leaves a block that shrinks.
    """

    scale: float = 0.577
    width: int = 200
    seed: int = 0

    def keeping_width(self) -> dict[str, Tensor]:
        """Jacobians of blocks with as many outputs as inputs."""
        branch = self._branch(self.width)
        return {"chain": branch, "residual (identity skip)": branch + torch.eye(self.width, dtype=torch.float64)}

    def shrinking(self) -> dict[str, Tensor]:
        """Jacobians of blocks with a quarter of the outputs; all have the same branch."""
        outputs = self.width // _POOLED
        branch, projection = self._branch(outputs), self._draw("projection", outputs)
        return {
            "chain": branch,
            "residual (projection)": branch + projection,
            "residual with average pool": branch + projection + average_pool(outputs, self.width),
        }

    def _branch(self, outputs: int) -> Tensor:
        """W₂ D W₁ with as many hidden units as inputs, half of which D switches off."""
        first, last = self._draw("first", self.width), self._draw("last", outputs)
        gates = Randomness(self.seed).child("gates", outputs).torch()
        are_on = torch.rand(self.width, generator=gates, dtype=torch.float64) < 0.5
        return last @ (are_on[:, None] * first)

    def _draw(self, name: str, outputs: int) -> Tensor:
        generator = Randomness(self.seed).child(name, outputs).torch()
        return gaussian((outputs, self.width), self.scale**2 / self.width, generator)


def average_pool(outputs: int, inputs: int) -> Tensor:
    """Averages of neighbours, scaled so that all singular values are 1; features left over are dropped."""
    group = torch.arange(inputs) // _POOLED
    return (group == torch.arange(outputs)[:, None]).double() / _POOLED**0.5


def _draw_blocks(values: Values, measured: Any) -> Drawing:
    """Singular values of blocks with different shortcuts."""
    blocks = RandomBlocks(float(values["scale"]), values["width"], values["seed"])
    shrinking, keeping = (
        {name: torch.linalg.svdvals(jacobian) for name, jacobian in jacobians.items()}
        for jacobians in (blocks.shrinking(), blocks.keeping_width())
    )
    width, left = blocks.width, blocks.width // _POOLED
    figures = [
        _sorted_values("shrinking_blocks", shrinking, width=width, left=left),
        _sorted_values("width_keeping_blocks", keeping, width=width),
    ]
    if measured is not None:
        figures.append(_sorted_values("mnist_block", measured, images=IMAGES))
    medians = [f"{name} {in_words(_without_rounding(found).median().item(), 2)}" for name, found in shrinking.items()]
    chain, residual = (_without_rounding(found)[-1].item() for found in keeping.values())
    code, real = snippet("blocks", own=blocks), snippet("measured_blocks", own=blocks)
    return Drawing(
        figures=tuple(figures),
        says=f"Where the width shrinks, the median singular value is: {', '.join(medians)}. Where it is kept, the "
        f"smallest is {in_words(chain, 2)} in the chain (ReLU switches half of the hidden units off) and "
        f"{in_words(residual, 2)} with an identity skip.",
        facts=tuple(
            (f"smallest, {name}", in_words(_without_rounding(found)[-1].item())) for name, found in shrinking.items()
        ),
        code=code + real if values["mnist"] else code,
        notes=(f"Random matrices in the place of the convolutions of {PAPER}",),
    )


def _without_rounding(values: Tensor) -> Tensor:
    """The singular values, with 0 where there is nothing but rounding."""
    return values * (values > len(values) * torch.finfo(values.dtype).eps * values[0])


def _sorted_values(name: str, spectra: dict[str, Tensor], **told: int) -> Figure:
    lines = []
    for label, values in spectra.items():
        share = (torch.arange(len(values), dtype=torch.float64) + 0.5) / len(values)
        lines.append(Line(numbers(share), numbers(values.flip(0)), label))
    return worded(name, *lines, Reference(1.0, "kept as it is"), **told)


NETWORKS = {
    "residual (projection)": "mnist_residual",
    "residual with average pool": "mnist_residual_avgpool",
    "residual with isometric pool": "mnist_residual_isopool",
}

IMAGES = 4
_BLOCK = "block2.residual"


def measured_blocks(scale: float, seed: int, progress: Progress = silent) -> dict[str, Tensor]:
    """Singular values of the block with each shortcut, descending; the chain is the block without its shortcut.

    At a few images, with batch statistics as they are.
    """
    images = as_floats(sample().images[:IMAGES], torch.float32)
    found: dict[str, Tensor] = {}
    for place, (name, network) in enumerate(NETWORKS.items()):

        def report(label: str, done: int, total: int, before: int = 100 * place) -> None:
            progress("networks measured", before + 100 * done // max(1, total), 100 * len(NETWORKS))

        model = scaled_network(network, scale, seed)
        reading = jacobian_spectrum(model, images, blocks=[_BLOCK], coupling="sample", progress=report, network=False)
        found.setdefault("chain", reading.without_shortcut[_BLOCK])
        found[name] = reading.singular_values[_BLOCK]
    return found


def scaled_network(name: str, scale: float, seed: int) -> nn.Module:
    """A network of the zoo whose convolutions have the variance scale²/inputs; PyTorch's own is 1/(3 inputs)."""
    model = zoo.build(name, seed).float()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data.mul_(scale / 3**-0.5)
    return model
