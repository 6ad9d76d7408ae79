"""One random layer: the singular values of W and of I + W, drawn and in the limit of infinite width."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.data.images import as_floats, sample
from skiplens.jacobians.spectrum import jacobian_spectrum
from skiplens.papers.macdonald2023_regularity.fig1 import SingularValueLaw
from skiplens.plots.figure import Band, Figure, Line, Mark, Reference, colour, numbers
from skiplens.zoo.weight_laws import gaussian

NAMES = {False: "W", True: "I + W"}


@dataclass(frozen=True)
class RandomLayer:
    """A square matrix W with independent Gaussian entries of variance scale²/width.

    Attributes:
        scale: s; 1/√3 is what PyTorch gives its linear layers.
        width: Rows and columns.
        depth: How many such layers follow each other.
        seed: Names the entries.
    """

    scale: float = 0.577
    width: int = 200
    depth: int = 20
    seed: int = 0

    @cached_property
    def weights(self) -> Tensor:
        """W."""
        return gaussian((self.width, self.width), self.scale**2 / self.width, Randomness(self.seed).torch())

    @cached_property
    def identity(self) -> Tensor:
        """What a skip adds."""
        return torch.eye(self.width, dtype=torch.float64)

    @cached_property
    def singular_values(self) -> dict[bool, Tensor]:
        """Those of W and, with a skip, of I + W; descending."""
        return {skip: torch.linalg.svdvals(self.weights + skip * self.identity) for skip in NAMES}

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


FEWEST_BINS, MOST_BINS = 8, 30

SCALES = torch.linspace(0.05, 2, 40, dtype=torch.float64).tolist()

DEPTHS = tuple(range(1, 101))


def singular_value_densities(layer: RandomLayer) -> Figure:
    """How the singular values are spread: a histogram of those drawn, and the law at infinite width."""
    highest = 1.05 * layer.law(True).support[1]
    places = torch.linspace(0, highest, 161, dtype=torch.float64)
    marks: list[Mark] = []
    for has_skip, name in NAMES.items():
        heights = layer.law(has_skip).density(places)
        marks.append(Line(numbers(places), numbers(heights), f"{name}, theory", colour=colour(int(has_skip))))
        steps, shares = histogram(layer.singular_values[has_skip], highest)
        floor = numbers(torch.zeros_like(shares))
        marks.append(Band(numbers(steps), floor, numbers(shares), f"{name}, drawn", colour=colour(int(has_skip))))
    return Figure(
        name="singular_values",
        title=f"Singular values of W and of I + W, weight scale {layer.scale:g}",
        caption="A singular value is the factor by which a layer stretches one direction: areas are those drawn, "
        "lines the limit of infinite width. Without the skip many are "
        "near zero: those directions of the gradient die. With it they gather around one.",
        x_label="singular value",
        y_label="density",
        marks=tuple(marks),
    )


def histogram(values: Tensor, highest: float) -> tuple[Tensor, Tensor]:
    """The outline of a histogram: both edges of each bin from 0 to `highest`, and its share over its width twice."""
    bins = min(MOST_BINS, max(FEWEST_BINS, len(values) // 6))
    shares = torch.histc(values, bins, 0, highest) * (bins / (len(values) * highest))
    edges = torch.linspace(0, highest, bins + 1, dtype=torch.float64)
    return edges.repeat_interleave(2)[1:-1], shares.repeat_interleave(2)


def range_against_scale(layer: RandomLayer) -> Figure:
    """Smallest, typical and largest singular value of a wide layer against the scale of its weights."""
    marks: list[Mark] = []
    for has_skip, name in NAMES.items():
        ends = [SingularValueLaw(scale, has_skip).support for scale in SCALES]
        low, high = (numbers(side) for side in zip(*ends, strict=True))
        typical = numbers([math.exp(log_typical(scale, has_skip)) for scale in SCALES])
        shade = colour(int(has_skip))
        marks.append(Band(numbers(SCALES), low, high, f"{name}, range", colour=shade))
        marks.append(Line(numbers(SCALES), typical, f"{name}, typical", colour=shade))
    return Figure(
        name="range_against_scale",
        title="Range of singular values against weight scale",
        caption="From the smallest to the largest singular value of a wide layer; typical is the geometric mean. With "
        "a skip it is exactly one and nothing reaches zero as long as the scale is below one; without a skip it is far "
        "below one unless weights are large.",
        x_label="weight scale s (entries have variance s²/width)",
        y_label="singular value",
        marks=(*marks, Reference(layer.scale, f"s = {layer.scale:g}", axis="x")),
    )


def typical_against_depth(layer: RandomLayer) -> Figure:
    """What is left of a typical direction after many such layers."""
    lines = [
        Line(numbers(DEPTHS), numbers([through(layer.scale, has_skip, depth) for depth in DEPTHS]), name)
        for has_skip, name in NAMES.items()
    ]
    return Figure(
        name="typical_against_depth",
        title="What is left of a typical direction after many layers",
        caption="The geometric mean of the singular values of a product of independent layers: without skips a "
        "gradient fades (or explodes) exponentially, with skips it keeps its size as long as the scale is below one.",
        x_label="layers",
        y_label="geometric mean of singular values",
        marks=(*lines, Reference(float(layer.depth), f"{layer.depth} layers", axis="x")),
        y_log=True,
    )


def through(scale: float, has_skip: bool, depth: int) -> float:
    """The geometric mean of the singular values of so many layers one after the other."""
    return math.exp(depth * log_typical(scale, has_skip))


POOLED = 4
"""Features that an average pool puts together: a window of 2 × 2 pixels."""


@dataclass(frozen=True)
class RandomBlocks:
    """Blocks of two random matrices with a ReLU between them, at random weights and a random input.

    Attributes:
        scale: Weights have variance scale²/inputs.
        width: Features that enter; a quarter of them leaves a block that shrinks.
        seed: Names the weights and which ReLUs are on.
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
        branch, projection = self._branch(self.outputs), self._draw("projection", self.outputs, self.width)
        return {
            "chain": branch,
            "residual (projection)": branch + projection,
            "residual with average pool": branch + projection + average_pool(self.outputs, self.width),
        }

    @property
    def outputs(self) -> int:
        """Features that leave a block that shrinks."""
        return self.width // POOLED

    def _branch(self, outputs: int) -> Tensor:
        """W₂ D W₁ with as many hidden units as inputs, half of which D switches off."""
        first, last = self._draw("first", self.width, self.width), self._draw("last", outputs, self.width)
        are_on = torch.rand(self.width, generator=self._stream("gates", outputs), dtype=torch.float64) < 0.5
        return last @ (are_on[:, None] * first)

    def _draw(self, name: str, outputs: int, inputs: int) -> Tensor:
        return gaussian((outputs, inputs), self.scale**2 / inputs, self._stream(name, outputs))

    def _stream(self, name: str, outputs: int) -> torch.Generator:
        return Randomness(self.seed).child(name, outputs).torch()


def average_pool(outputs: int, inputs: int) -> Tensor:
    """Averages of neighbours, scaled so that all singular values are 1; features left over are dropped."""
    group = torch.arange(inputs) // POOLED
    return (group == torch.arange(outputs)[:, None]).double() / POOLED**0.5


_CAPTION = (
    "All singular values in order. A curve that lies near one keeps every direction alive; one that touches zero loses "
    "directions."
)


def shrinking_blocks(blocks: RandomBlocks) -> Figure:
    """Blocks that give a quarter of what they take."""
    return _sorted(
        "shrinking_blocks",
        f"Blocks from {blocks.width} to {blocks.outputs} features",
        f"{_CAPTION} The average pool lifts all of them, because all its singular values are one.",
        _spectra(blocks.shrinking()),
    )


def width_keeping_blocks(blocks: RandomBlocks) -> Figure:
    """Blocks that give as much as they take."""
    return _sorted(
        "width_keeping_blocks",
        f"Blocks that keep {blocks.width} features",
        f"{_CAPTION} Half of the chain's are exactly zero: ReLU switches off half of the hidden units.",
        _spectra(blocks.keeping_width()),
    )


@dataclass(frozen=True, eq=False)
class MeasuredBlocks:
    """Singular values of the block with each shortcut, descending; the chain is the block without its shortcut."""

    singular_values: dict[str, Tensor]


def mnist_block(measured: MeasuredBlocks) -> Figure:
    """The measured block of the paper's networks."""
    return _sorted(
        "mnist_block",
        f"Second block of the MNIST networks, {IMAGES} digits",
        f"{_CAPTION} The same weights with four shortcuts: each lifts the spectrum further.",
        measured.singular_values,
    )


def _spectra(jacobians: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.linalg.svdvals(jacobian) for name, jacobian in jacobians.items()}


def _sorted(name: str, title: str, caption: str, spectra: dict[str, Tensor]) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption=caption,
        x_label="share of directions",
        y_label="singular value",
        marks=(*(_line(values, label) for label, values in spectra.items()), Reference(1.0, "kept as it is")),
    )


def _line(values: Tensor, name: str) -> Line:
    share = (torch.arange(len(values), dtype=torch.float64) + 0.5) / len(values)
    return Line(numbers(share), numbers(values.flip(0)), name)


NETWORKS = {
    "residual (projection)": "mnist_residual",
    "residual with average pool": "mnist_residual_avgpool",
    "residual with isometric pool": "mnist_residual_isopool",
}

BLOCK = "block2.residual"

IMAGES = 4

DEFAULT_SCALE = 3**-0.5
"""PyTorch's own weights have the variance 1/(3 inputs)."""


def measured_blocks(scale: float, seed: int, progress: Progress = silent) -> MeasuredBlocks:
    """The block's Jacobian at a few images, with batch statistics as they are."""
    images = as_floats(sample().images[:IMAGES], torch.float32)
    found: dict[str, Tensor] = {}
    for place, (name, network) in enumerate(NETWORKS.items()):
        model, part = scaled_network(network, scale, seed), _part(progress, place)
        reading = jacobian_spectrum(model, images, [BLOCK], coupling="sample", progress=part, network=False)
        found.setdefault("chain", reading.without_shortcut[BLOCK])
        found[name] = reading.singular_values[BLOCK]
    return MeasuredBlocks(found)


def _part(progress: Progress, place: int) -> Progress:
    """The progress of one network as its part of all."""

    def report(label: str, done: int, total: int) -> None:
        progress("networks measured", 100 * place + 100 * done // max(1, total), 100 * len(NETWORKS))

    return report


def scaled_network(name: str, scale: float, seed: int) -> nn.Module:
    """A network of the zoo whose convolutions have weights of the variance scale²/inputs."""
    model = zoo.build(name, seed).float()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data.mul_(scale / DEFAULT_SCALE)
    return model
