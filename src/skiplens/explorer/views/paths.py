"""The paths view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from skiplens.base.progress import Progress
from skiplens.explorer.control import Choice, Control, Slider
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.paths_network import draw_network, measure_network
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import network_complexity
from skiplens.paths.bands import BranchStatistics, length_quantile, limit_fraction
from skiplens.paths.weights import path_moments, path_weights, peak_length
from skiplens.plots.figure import Band, Figure, Line, Reference, colour, numbers
from skiplens.plots.section import number_in_words


@dataclass(frozen=True)
class PathsView(View):
    """Which path lengths carry the signal."""

    name: ClassVar[str] = "paths"
    title: ClassVar[str] = "Paths"
    lead: ClassVar[str] = (
        "A residual network is a crowd of paths: each block is passed or skipped. Which lengths carry the signal?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The depth and β of the theory, or a network and the factor of its branches."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The theory's curves, or the measured spectrum."""
        return draw_network(values, measured) if values["look_at"] == NETWORK else draw_theory(values)

    def measurement(self, values: Values) -> Values | None:
        """The network, its seed and the factor."""
        if values["look_at"] != NETWORK:
            return None
        return {name: values[name] for name in ("model", "factor", "seed")}

    def measure(self, values: Values, progress: Progress) -> Any:
        """The spectra of the network before and after scaling."""
        return measure_network(values, progress)


THEORY, NETWORK = "theory", "network"

RATIO, SCALE = "ratio", "scale"

_IN_THEORY = ("look_at", (THEORY,))

_IN_NETWORK = ("look_at", (NETWORK,))

MODELS = (
    ("digits_resnet", "digits_resnet: 8 blocks, batch norm"),
    ("ensemble_resnet", "ensemble_resnet: 9 fully connected blocks"),
    ("preact_resnet", "preact_resnet: 18 blocks for CIFAR"),
    ("preact_resnet18", "preact_resnet18: 8 blocks, 11 million weights"),
    ("tangent_resnet", "tangent_resnet: 10 blocks of two matrices"),
    ("mnist_residual", "mnist_residual: 2 convolutional blocks"),
)
"""Networks of the zoo that have at least two shortcuts, and what they are."""

CONTROLS = (
    Choice(
        "look_at",
        "Look at",
        help="The closed form of the paper, or the spectrum measured in a real network beside it.",
        options=((THEORY, "Theory"), (NETWORK, "A real network")),
        default=THEORY,
    ),
    Slider(
        "depth",
        "Depth p",
        help="Layers of the network: one, then p − 1 residual blocks. A path takes or skips each block.",
        low=2,
        high=1000,
        default=100,
        whole=True,
        logarithmic=True,
        only_when=_IN_THEORY,
    ),
    Choice(
        "given",
        "Branch strength from",
        help="Set β itself, or the weights that make it: β = ρ n C / √n.",
        options=((RATIO, "β"), (SCALE, "C, width, ρ")),
        default=RATIO,
        only_when=_IN_THEORY,
    ),
    Slider(
        "beta",
        "Depth ratio β",
        help="How strong a branch is beside its shortcut. Small: short paths win. Large: long paths win.",
        low=0.001,
        high=100,
        default=0.5,
        logarithmic=True,
        only_when=("given", (RATIO,)),
    ),
    Slider(
        "scale",
        "Weight scale C",
        help="Root mean square of the weights of a branch.",
        low=0.001,
        high=10,
        default=0.125,
        logarithmic=True,
        only_when=("given", (SCALE,)),
    ),
    Slider(
        "width",
        "Width n",
        help="Units of every layer: the more, the more paths add up.",
        low=1,
        high=4096,
        default=64,
        whole=True,
        logarithmic=True,
        only_when=("given", (SCALE,)),
    ),
    Slider(
        "gate",
        "Open gates ρ",
        help="How often a ReLU lets the signal through; one half for random weights.",
        low=0.01,
        high=1,
        default=0.5,
        step=0.01,
        only_when=("given", (SCALE,)),
    ),
    Choice(
        "model",
        "Network",
        help="A network of the zoo with random weights, on embedded images.",
        options=MODELS,
        default="digits_resnet",
        only_when=_IN_NETWORK,
    ),
    Slider(
        "factor",
        "Branches times",
        help="Multiplies every branch of the network; in the theory β grows by the same factor.",
        low=0.02,
        high=50,
        default=1,
        logarithmic=True,
        only_when=_IN_NETWORK,
    ),
    Slider(
        "seed",
        "Seed",
        help="Which random weights the network has.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=_IN_NETWORK,
    ),
)

TAIL = 0.05
"""The share of energy below and above the band that holds 90 %."""

_DEPTHS = (2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220, 320, 450, 640, 1000)

_RATIOS = torch.logspace(-3, 3, 241, dtype=torch.float64)


def depth_ratio(values: Values) -> float:
    """β, as it is or from the weights that make it."""
    if values["given"] != SCALE:
        return values["beta"]
    return BranchStatistics(values["width"], values["gate"]).depth_ratio(values["scale"])


def band(depth: int, ratio: float) -> tuple[int, int]:
    """The lengths between which 90 % of the energy is: a twentieth is shorter, a twentieth longer."""
    first, last = (int(length_quantile(depth, ratio, level)) for level in (TAIL, 1 - TAIL))
    return first, last


def draw_theory(values: Values) -> Drawing:
    """Everything that the theory says for a depth and a β."""
    depth, ratio = values["depth"], depth_ratio(values)
    first, last = band(depth, ratio)
    peak, fraction = int(peak_length(depth, ratio)), float(limit_fraction(ratio))
    complexity = float(network_complexity(depth, ratio, shortest=1))
    return Drawing(
        figures=(_weights(depth, ratio), _against_depth(ratio), _along_ratio(depth, ratio), _complexity(depth, ratio)),
        says=_says(depth, ratio),
        facts=(
            ("β", number_in_words(ratio)),
            ("peak path length", str(peak)),
            ("90 % of the energy", f"{first} to {last}"),
            ("peak / depth", f"{peak / depth:.3f}"),
            ("asymptote β/(1+β)", f"{fraction:.3f}"),
            ("complexity θ", number_in_words(complexity)),
        ),
        code=_code(values),
        notes=(
            "Energy of length r: ε_r², with ε_r proportional to C(p−1, r−1) β^r (Littwin & Wolf 2016, eq. 16). "
            "θ is the exponential rate at which critical points multiply with the number of weights (eq. 31, corrected "
            "where the linear term makes the landscape simple).",
        ),
    )


def _says(depth: int, ratio: float) -> str:
    first, last = band(depth, ratio)
    share = (last - first + 1) / depth
    opening = (
        f"Of {depth} layers, paths of length {first} to {last} carry 90 % of the energy: the network acts like a crowd "
        f"of networks of depth {int(peak_length(depth, ratio))}."
    )
    return f"{opening} All other lengths hardly count." if share < 0.5 else opening


def _weights(depth: int, ratio: float) -> Figure:
    energy = path_weights(depth, ratio).square()
    lengths = torch.arange(1, depth + 1)
    first, last = band(depth, ratio)
    inside = (lengths >= first) & (lengths <= last)
    place, height = numbers(lengths[inside]), numbers(energy[inside])
    marks = (
        Band(place, (0.0,) * len(place), height, "90 % of the energy", colour(0)),
        Line(numbers(lengths), numbers(energy), "energy of all paths of this length", colour=colour(0)),
        Reference(depth * float(limit_fraction(ratio)), "p β/(1+β)", "x"),
    )
    return Figure(
        "path_weights",
        "Energy of paths by their length",
        f"Depth {depth}, β = {number_in_words(ratio)}. The shaded lengths hold 90 % of the energy.",
        "path length r (layers)",
        "energy ε_r²",
        marks,
    )


def _against_depth(ratio: float) -> Figure:
    shortest, longest = torch.tensor([band(depth, ratio) for depth in _DEPTHS], dtype=torch.float64).T
    peaks = torch.tensor([int(peak_length(depth, ratio)) for depth in _DEPTHS], dtype=torch.float64)
    depths = torch.tensor(_DEPTHS, dtype=torch.float64)
    return Figure(
        "against_depth",
        "The same β at other depths",
        "As networks get deeper the band closes around the share β/(1+β) of the depth: depth alone does not make a "
        "network use long paths.",
        "depth p (layers)",
        "path length / depth",
        (
            Band(_DEPTHS, numbers(shortest / depths), numbers(longest / depths), "90 % of the energy", colour(0)),
            Line(_DEPTHS, numbers(peaks / depths), "peak", colour=colour(0)),
            Reference(float(limit_fraction(ratio)), "β/(1+β)"),
        ),
        x_log=True,
    )


def _along_ratio(depth: int, ratio: float) -> Figure:
    means = path_moments(depth, _RATIOS).mean / depth
    peaks = peak_length(depth, _RATIOS) / depth
    return Figure(
        "along_beta",
        "The same depth with other β",
        "Training raises β as weights grow, and the network gets deeper in effect.",
        "depth ratio β",
        "path length / depth",
        (
            Line(numbers(_RATIOS), numbers(peaks), "peak"),
            Line(numbers(_RATIOS), numbers(means), "mean"),
            Line(numbers(_RATIOS), numbers(limit_fraction(_RATIOS)), "β/(1+β)", dashed=True, colour="ink"),
            Reference(ratio, "here", "x"),
        ),
        x_log=True,
    )


def _complexity(depth: int, ratio: float) -> Figure:
    kept = network_complexity(depth, _RATIOS, shortest=1)
    dropped = network_complexity(depth, _RATIOS, shortest=2)
    return Figure(
        "complexity",
        "Complexity of the loss surface",
        "How fast the number of critical points grows with the number of weights. Below a small β the landscape is "
        "simple; as β grows it fills with critical points.",
        "depth ratio β",
        "complexity θ",
        (
            Line(numbers(_RATIOS), numbers(kept), "all paths, as the network has them"),
            Line(numbers(_RATIOS), numbers(dropped), "without paths of length 1, as the paper draws it", dashed=True),
            Reference(ratio, "here", "x"),
        ),
        x_log=True,
    )


def _code(values: Values) -> str:
    depth = values["depth"]
    if values["given"] != SCALE:
        ratio, names = repr(values["beta"]), "path_weights"
    else:
        names = "BranchStatistics, path_weights"
        statistics = f"BranchStatistics(width={values['width']}, gate_probability={values['gate']})"
        ratio = f"{statistics}.depth_ratio({values['scale']})"
    return (
        f"from skiplens.theory.path_weights import {names}\n\n"
        f"beta = {ratio}\n"
        f"result = path_weights(depth={depth}, depth_ratio=beta).square()  # energy of each path length\n"
    )
