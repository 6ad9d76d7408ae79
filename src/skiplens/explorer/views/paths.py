"""The paths view: which path lengths carry the signal, in closed form and in a real network with scaled branches."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens import data, zoo
from skiplens.base.errors import NotResidualError
from skiplens.base.progress import Progress
from skiplens.edits.initialisation import scale_branch_ends
from skiplens.explorer.control import Choice, Control, Slider, only_when
from skiplens.explorer.view import Drawing, Values, View
from skiplens.graph.batch import take
from skiplens.graph.dissect import dissect
from skiplens.graph.network import ResidualNetwork
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import network_complexity
from skiplens.papers.statistics import figure
from skiplens.paths.bands import BranchStatistics, length_quantile, limit_fraction
from skiplens.paths.laws import binomial, fit_laws, squared_binomial
from skiplens.paths.reading import PathSpectrum
from skiplens.paths.spectrum import measure
from skiplens.paths.weights import path_moments, path_weights, peak_length
from skiplens.plots.figure import Band, Bars, Figure, Line, Reference, colour, numbers
from skiplens.plots.section import number_in_words

THEORY, NETWORK = "theory", "network"
RATIO, SCALE = "ratio", "scale"

MODELS = (
    ("digits_resnet", "digits_resnet: 8 blocks, batch norm"),
    ("ensemble_resnet", "ensemble_resnet: 9 fully connected blocks"),
    ("preact_resnet", "preact_resnet: 18 blocks for CIFAR"),
    ("preact_resnet18", "preact_resnet18: 8 blocks, 11 million weights"),
    ("tangent_resnet", "tangent_resnet: 10 blocks of two matrices"),
    ("mnist_residual", "mnist_residual: 2 convolutional blocks"),
)
"""Networks of the zoo that have at least two shortcuts, and what they are."""

_WEIGHTS = only_when(
    "given",
    (SCALE,),
    Slider("scale", "Weight scale C", 0.001, 10, default=0.125, logarithmic=True).explained(
        "Root mean square of the weights of a branch."
    ),
    Slider("width", "Width n", 1, 4096, default=64, whole=True, logarithmic=True).explained(
        "Units of every layer: the more, the more paths add up."
    ),
    Slider("gate", "Open gates ρ", 0.01, 1, default=0.5, step=0.01).explained(
        "How often a ReLU lets the signal through; one half for random weights."
    ),
)

CONTROLS: tuple[Control, ...] = (
    Choice("look_at", "Look at", ((THEORY, "Theory"), (NETWORK, "A real network")), default=THEORY).explained(
        "The closed form of the paper, or the spectrum measured in a real network beside it."
    ),
    *only_when(
        "look_at",
        (THEORY,),
        Slider("depth", "Depth p", 2, 1000, default=100, whole=True, logarithmic=True).explained(
            "Layers of the network: one, then p − 1 residual blocks. A path takes or skips each block."
        ),
        Choice("given", "Branch strength from", ((RATIO, "β"), (SCALE, "C, width, ρ")), default=RATIO).explained(
            "Set β itself, or the weights that make it: β = ρ n C / √n."
        ),
    ),
    Slider("beta", "Depth ratio β", 0.001, 100, default=0.5, logarithmic=True, only_when=("given", (RATIO,))).explained(
        "How strong a branch is beside its shortcut. Small: short paths win. Large: long paths win."
    ),
    *_WEIGHTS,
    *only_when(
        "look_at",
        (NETWORK,),
        Choice("model", "Network", MODELS, default="digits_resnet").explained(
            "A network of the zoo with random weights, on embedded images."
        ),
        Slider("factor", "Branches times", 0.02, 50, default=1, logarithmic=True).explained(
            "Multiplies every branch of the network; in the theory β grows by the same factor."
        ),
        Slider("seed", "Seed", 0, 99, default=0, whole=True).explained("Which random weights the network has."),
    ),
)


@dataclass(frozen=True)
class PathsView(View):
    """Which path lengths carry the signal."""

    name: ClassVar[str] = "paths"
    title: ClassVar[str] = "Paths"
    lead: ClassVar[str] = (
        "A residual network is a crowd of paths: each block is passed or skipped. Which lengths carry the signal?"
    )
    fixed_controls: ClassVar[tuple[Control, ...]] = CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The theory's curves, or the measured spectrum."""
        return _draw_network(values, measured) if values["look_at"] == NETWORK else _draw_theory(values)

    def measurement(self, values: Values) -> Values | None:
        """The network, its seed and the factor."""
        if values["look_at"] != NETWORK:
            return None
        return {name: values[name] for name in ("model", "factor", "seed")}

    def measure(self, values: Values, progress: Progress) -> "ScaledSpectrum":
        """The spectra of a zoo network before and after its branches are scaled."""
        progress("taking the network apart", 0, 3)
        network, inputs = _taken_apart(values["model"], values["seed"])
        progress("following the paths", 1, 3)
        plain = measure(network, inputs)
        progress("following the paths of the scaled network", 2, 3)
        model = scale_branch_ends(network.model, zoo.branch_parameters(network.model), values["factor"])
        scaled = measure(dataclasses.replace(network, model=model), inputs)
        progress("done", 3, 3)
        return ScaledSpectrum(plain, scaled)


# The theory.

_TAIL = 0.05  # the share of energy below and above the band that holds 90 %
_DEPTHS = (2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220, 320, 450, 640, 1000)
_RATIOS = torch.logspace(-3, 3, 241, dtype=torch.float64)


def _draw_theory(values: Values) -> Drawing:
    """Everything that the theory says for a depth and a β."""
    depth, ratio, ratio_code = values["depth"], values["beta"], repr(values["beta"])
    imports = "from skiplens.paths.weights import path_weights\n"
    if values["given"] == SCALE:
        width, gate, scale = values["width"], values["gate"], values["scale"]
        ratio = BranchStatistics(width, gate).depth_ratio(scale)
        ratio_code = f"BranchStatistics(width={width}, gate_probability={gate}).depth_ratio({scale})"
        imports = f"from skiplens.paths.bands import BranchStatistics\n{imports}"
    first, last = _band(depth, ratio)
    peak = int(peak_length(depth, ratio))
    opening = (
        f"Of {depth} layers, paths of length {first} to {last} carry 90 % of the energy: the network acts like a crowd "
        f"of networks of depth {peak}."
    )
    return Drawing(
        figures=(_weights(depth, ratio), _against_depth(ratio), _along_ratio(depth, ratio), _complexity(depth, ratio)),
        says=f"{opening} All other lengths hardly count." if (last - first + 1) / depth < 0.5 else opening,
        facts=(
            ("β", number_in_words(ratio)),
            ("peak path length", str(peak)),
            ("90 % of the energy", f"{first} to {last}"),
            ("peak / depth", f"{peak / depth:.3f}"),
            ("asymptote β/(1+β)", f"{float(limit_fraction(ratio)):.3f}"),
            ("complexity θ", number_in_words(float(network_complexity(depth, ratio, shortest=1)))),
        ),
        code=f"{imports}\nbeta = {ratio_code}\n"
        f"result = path_weights(depth={depth}, depth_ratio=beta).square()  # energy of each path length\n",
        notes=(
            "Energy of length r: ε_r², with ε_r proportional to C(p−1, r−1) β^r (Littwin & Wolf 2016, eq. 16). "
            "θ is the exponential rate at which critical points multiply with the number of weights (eq. 31, corrected "
            "where the linear term makes the landscape simple).",
        ),
    )


def _band(depth: int, ratio: float) -> tuple[int, int]:
    """The lengths between which 90 % of the energy is: a twentieth is shorter, a twentieth longer."""
    return int(length_quantile(depth, ratio, _TAIL)), int(length_quantile(depth, ratio, 1 - _TAIL))


def _weights(depth: int, ratio: float) -> Figure:
    energy = path_weights(depth, ratio).square()
    lengths = torch.arange(1, depth + 1)
    first, last = _band(depth, ratio)
    inside = (lengths >= first) & (lengths <= last)
    place, height = numbers(lengths[inside]), numbers(energy[inside])
    return figure(
        ("path_weights", "Energy of paths by their length"),
        f"Depth {depth}, β = {number_in_words(ratio)}. The shaded lengths hold 90 % of the energy.",
        ("path length r (layers)", "energy ε_r²"),
        (
            Band(place, (0.0,) * len(place), height, "90 % of the energy", colour(0)),
            Line(numbers(lengths), numbers(energy), "energy of all paths of this length", colour=colour(0)),
            Reference(depth * float(limit_fraction(ratio)), "p β/(1+β)", "x"),
        ),
    )


def _against_depth(ratio: float) -> Figure:
    shortest, longest = torch.tensor([_band(depth, ratio) for depth in _DEPTHS], dtype=torch.float64).T
    peaks = torch.tensor([int(peak_length(depth, ratio)) for depth in _DEPTHS], dtype=torch.float64)
    depths = torch.tensor(_DEPTHS, dtype=torch.float64)
    return figure(
        ("against_depth", "The same β at other depths"),
        "As networks get deeper the band closes around the share β/(1+β) of the depth: depth alone does not make a "
        "network use long paths.",
        ("depth p (layers)", "path length / depth"),
        (
            Band(_DEPTHS, numbers(shortest / depths), numbers(longest / depths), "90 % of the energy", colour(0)),
            Line(_DEPTHS, numbers(peaks / depths), "peak", colour=colour(0)),
            Reference(float(limit_fraction(ratio)), "β/(1+β)"),
        ),
        log="x",
    )


def _along_ratio(depth: int, ratio: float) -> Figure:
    return figure(
        ("along_beta", "The same depth with other β"),
        "Training raises β as weights grow, and the network gets deeper in effect.",
        ("depth ratio β", "path length / depth"),
        (
            Line(numbers(_RATIOS), numbers(peak_length(depth, _RATIOS) / depth), "peak"),
            Line(numbers(_RATIOS), numbers(path_moments(depth, _RATIOS).mean / depth), "mean"),
            Line(numbers(_RATIOS), numbers(limit_fraction(_RATIOS)), "β/(1+β)", dashed=True, colour="ink"),
            Reference(ratio, "here", "x"),
        ),
        log="x",
    )


def _complexity(depth: int, ratio: float) -> Figure:
    kept = network_complexity(depth, _RATIOS, shortest=1)
    dropped = network_complexity(depth, _RATIOS, shortest=2)
    return figure(
        ("complexity", "Complexity of the loss surface"),
        "How fast the number of critical points grows with the number of weights. Below a small β the landscape is "
        "simple; as β grows it fills with critical points.",
        ("depth ratio β", "complexity θ"),
        (
            Line(numbers(_RATIOS), numbers(kept), "all paths, as the network has them"),
            Line(numbers(_RATIOS), numbers(dropped), "without paths of length 1, as the paper draws it", dashed=True),
            Reference(ratio, "here", "x"),
        ),
        log="x",
    )


# A real network.

_SAMPLES = 16
_FAR = 0.15  # a total variation above which a law does not describe a spectrum


@dataclass(frozen=True, eq=False)
class ScaledSpectrum:
    """What was measured: the network as it is, and with its branches multiplied by the factor."""

    plain: PathSpectrum
    scaled: PathSpectrum


@lru_cache(4)  # the largest has 11 million weights
def _taken_apart(name: str, seed: int) -> tuple[ResidualNetwork, Any]:
    """The network and its inputs; the graph reads whatever weights a model has, so it serves every factor."""
    inputs = take(data.fit_to(data.load("sample"), _input_shape(name)), _SAMPLES).inputs
    return dissect(zoo.build(name, seed), inputs), inputs


def _input_shape(name: str) -> tuple[int, ...]:
    return zoo.entry(name).settings({}).input_shape()


@dataclass(frozen=True, eq=False)
class Prediction:
    """The spectrum that a law predicts for the scaled network."""

    name: str  # how its branches add up
    parameter: str  # the law's parameter and its value, in words
    energies: Tensor  # the shares of energy for 0..q branches

    def distance(self, reading: PathSpectrum) -> float:
        """Total variation between this law and what was measured."""
        return 0.5 * float((self.energies - reading.distribution.double()).abs().sum())


def predict(plain: PathSpectrum, factor: float) -> tuple[Prediction, ...]:
    """What the scaled network should do if its branches add up in phase (the paper's law), or at right angles."""
    if plain.blocks < 2:
        raise NotResidualError("The network has fewer than two shortcuts, so every law fits; choose another one.")
    fits = {fit.name: fit.parameter for fit in fit_laws(plain.energy)}
    ratio = fits["squared_binomial"] * factor
    gain = fits["binomial"] * factor**2
    return (
        Prediction("in phase", f"β = {number_in_words(ratio)}", squared_binomial(plain.blocks, ratio)),
        Prediction("at right angles", f"gain = {number_in_words(gain)}", binomial(plain.blocks, gain)),
    )


def _draw_network(values: Values, measured: ScaledSpectrum | None) -> Drawing:
    """The measured spectrum beside the theory's."""
    name, factor = values["model"], values["factor"]
    code = (
        "import skiplens as sl\n"
        "from skiplens import data, zoo\n"
        "from skiplens.edits.initialisation import scale_branch_ends\n"
        "from skiplens.graph.batch import take\n\n"
        f"model = zoo.build({name!r}, seed={values['seed']})\n"
        f"model = scale_branch_ends(model, zoo.branch_parameters(model), {factor!r})\n"
        f"inputs = take(data.fit_to(data.load('sample'), {_input_shape(name)}), {_SAMPLES}).inputs\n"
        "result = sl.path_spectrum(model, inputs).distribution\n"
    )
    if measured is None:
        return Drawing(says=f"Measuring {name} …", code=code)
    plain, scaled = measured.plain, measured.scaled
    predictions = predict(plain, factor)
    if factor == 1:
        opening = f"As it is, the energy of {name} passes {scaled.mean_depth:.1f} of its {plain.blocks} branches."
    else:
        depths = f"from {plain.mean_depth:.1f} to {scaled.mean_depth:.1f}"
        opening = f"With branches times {factor:g} the mean depth of {name} goes {depths}."
    nearest = min(predictions, key=lambda law: law.distance(scaled))
    theory = f"It does what theory says of branches that add up {nearest.name}."
    if nearest.distance(scaled) > _FAR:
        theory = "Neither law fits here: activations and normalisation change with the factor, too."
    return Drawing(
        figures=(_spectrum(scaled, predictions), _before_and_after(measured)),
        says=f"{opening} {theory}",
        facts=(
            ("mean depth, branches", f"{scaled.mean_depth:.2f} of {scaled.blocks}"),
            ("before scaling", f"{plain.mean_depth:.2f}"),
            ("peak", str(scaled.peak_depth)),
            *((f"distance, {law.name}", f"{law.distance(scaled):.0%}") for law in predictions),
            ("nearest law of all", scaled.law.replace("_", " ") or "none"),
        ),
        code=code,
        notes=(
            f"Measured on {_SAMPLES} embedded images. A prediction takes the parameter that gives the network its mean "
            "depth as it is, then multiplies branches by the factor. Distance: total variation, 0 % is the same "
            "spectrum, 100 % has nothing in common.",
            *scaled.notes,
        ),
    )


def _spectrum(reading: PathSpectrum, predictions: Sequence[Prediction]) -> Figure:
    orders = numbers(torch.arange(len(reading.energy)))
    lines = [
        Line(orders, numbers(law.energies), f"theory, {law.name} ({law.parameter})", dashed=bool(index))
        for index, law in enumerate(predictions)
    ]
    return figure(
        ("measured_spectrum", "Measured path spectrum and the theory's"),
        "Bars: share of energy of all paths through exactly so many branches. Lines: predicted from the network before "
        "scaling; in phase is the paper's law, at right angles is what random signs give.",
        ("branches on the path", "share of the energy"),
        (Bars(tuple(str(int(order)) for order in orders), numbers(reading.distribution), "measured"), *lines),
    )


def _before_and_after(measured: ScaledSpectrum) -> Figure:
    orders = numbers(torch.arange(len(measured.plain.energy)))
    return figure(
        ("before_and_after", "Before and after scaling"),
        "What the factor does: weak branches leave short paths, strong ones make paths through all blocks win.",
        ("branches on the path", "share of the energy"),
        (
            Line(orders, numbers(measured.plain.distribution), "as it is", dashed=True),
            Line(orders, numbers(measured.scaled.distribution), "branches scaled"),
        ),
    )
