"""The paths view: which path lengths carry the signal, in closed form and in a real network with scaled branches."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from skiplens import data, zoo
from skiplens.base import NotResidualError, Progress, in_words, percent
from skiplens.edits.initialisation import scale_branch_ends
from skiplens.explorer.control import Control
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.runs_folder import RunsFolder, model_among, with_models
from skiplens.explorer.written import controls_of, notes_of, snippet, worded
from skiplens.graph import ResidualNetwork, dissect
from skiplens.graph.batch import take
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import network_complexity
from skiplens.paths.bands import BranchStatistics, length_quantile, limit_fraction
from skiplens.paths.laws import binomial, fit_laws, fit_named_law, squared_binomial
from skiplens.paths.reading import PathSpectrum
from skiplens.paths.spectrum import measure
from skiplens.paths.weights import path_moments, path_weights, peak_length
from skiplens.plots.figure import INK, Band, Bars, Figure, Line, Mark, Points, Reference, colour, numbers
from skiplens.report import Report
from skiplens.report.during_training import DepthHistory, depth_during_training
from skiplens.training.recipe import Recipe

THEORY, NETWORK, TRAINING = "theory", "network", "training"
SCALE = "scale"

CONTROLS = controls_of("paths")
GHOSTLY = colour(1)
_TAIL = 0.05  # the share of energy below and above the band that holds 90 %
_DEPTHS = (2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220, 320, 450, 640, 1000)
_RATIOS = torch.logspace(-3, 3, 241, dtype=torch.float64)
_SAMPLES = 16
_FAR = 0.15  # a total variation above which a law does not describe a spectrum
_EVERY, _STEPS, _DIGITS = 5, 100, 512
_STILL = 0.05  # branches; a smaller change is none to speak of


@dataclass(frozen=True)
class PathsView(View):
    """Which path lengths carry the signal."""

    name = "paths"
    title = "Paths"
    lead = "A residual network is a crowd of paths: each block is passed or skipped. Which lengths carry the signal?"

    runs: RunsFolder | None = None  # whose models can be laid over the theory

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """Those of the theory and of networks, and the reports among the runs, where there are any."""
        return with_models(CONTROLS, self.runs)

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The theory's curves, with a model as a ghost over them; or the measured spectrum of a network."""
        if values["look_at"] != THEORY:
            return (_draw_network if values["look_at"] == NETWORK else _draw_training)(values, measured)
        found = model_among(self.runs, values)
        return _haunted(_draw_theory(values), *found) if found else _draw_theory(values)

    def measurement(self, values: Values) -> Values | None:
        """The network, its seed and the factor; or what decides a training."""
        names = {NETWORK: ("model", "factor", "seed"), TRAINING: ("learner", "rate", "decay", "seed")}
        wanted = names.get(values["look_at"])
        return None if wanted is None else {name: values[name] for name in wanted}

    def measure(self, values: Values, progress: Progress) -> "ScaledSpectrum | DepthHistory":
        """The spectra of a zoo network before and after its branches are scaled, or while it learns."""
        if "learner" in values:
            return _trained(values, progress)
        progress("taking the network apart", 0, 3)
        network, inputs = _taken_apart(values["model"], values["seed"])
        progress("following the paths", 1, 3)
        plain = measure(network, inputs)
        progress("following the paths of the scaled network", 2, 3)
        model = scale_branch_ends(network.model, zoo.branch_parameters(network.model), values["factor"])
        scaled = measure(dataclasses.replace(network, model=model), inputs)
        progress("done", 3, 3)
        return ScaledSpectrum(plain, scaled)


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
            ("β", in_words(ratio)),
            ("peak path length", str(peak)),
            ("90 % of the energy", f"{first} to {last}"),
            ("peak / depth", f"{peak / depth:.3f}"),
            ("asymptote β/(1+β)", f"{float(limit_fraction(ratio)):.3f}"),
            ("complexity θ", in_words(float(network_complexity(depth, ratio, shortest=1)))),
        ),
        code=snippet("path_weights", imports=imports, ratio=ratio_code, depth=depth),
        notes=notes_of("paths"),
    )


def _haunted(drawing: Drawing, name: str, report: Report) -> Drawing:
    """The drawing with a measured network on its curves; paths through r branches have length r + 1."""
    spectrum = report.reading(PathSpectrum)
    if spectrum is None or spectrum.blocks < 2:
        raise NotResidualError(f"The report {name!r} has no path spectrum of two or more blocks; choose another one.")
    ratio = fit_named_law(spectrum.energy, "squared_binomial").parameter
    depth, mean = spectrum.blocks + 1, spectrum.mean_depth + 1
    energies = Line(numbers(torch.arange(1, depth + 1)), numbers(spectrum.distribution), name, True, INK)
    peak = float(spectrum.peak_depth + 1) / depth
    places: dict[str, tuple[Mark, ...]] = {
        "path_weights": (energies,),
        "against_depth": (Points((float(depth),), (peak,), f"{name}, peak", colour=GHOSTLY, crossed=True),),
        "along_beta": (Points((ratio,), (mean / depth,), f"{name}, mean", colour=GHOSTLY, crossed=True),),
    }
    words = f"{name} (dashed) is a network of {depth} layers whose energy passes {mean:.1f} of them on average; β = "
    return drawing.haunted(
        places,
        f"{words}{in_words(ratio)} gives that mean; set depth and β to these to compare.",
        (f"β of {name}", in_words(ratio)),
        (f"mean length, {name}", f"{mean:.1f} of {depth}"),
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
    return worded(
        "path_weights",
        Band(place, (0.0,) * len(place), height, "90 % of the energy", colour(0)),
        Line(numbers(lengths), numbers(energy), "energy of all paths of this length", colour=colour(0)),
        Reference(depth * float(limit_fraction(ratio)), "p β/(1+β)", "x"),
        depth=depth,
        ratio=in_words(ratio),
    )


def _against_depth(ratio: float) -> Figure:
    shortest, longest = torch.tensor([_band(depth, ratio) for depth in _DEPTHS], dtype=torch.float64).T
    peaks = torch.tensor([int(peak_length(depth, ratio)) for depth in _DEPTHS], dtype=torch.float64)
    depths = torch.tensor(_DEPTHS, dtype=torch.float64)
    return worded(
        "against_depth",
        Band(_DEPTHS, numbers(shortest / depths), numbers(longest / depths), "90 % of the energy", colour(0)),
        Line(_DEPTHS, numbers(peaks / depths), "peak", colour=colour(0)),
        Reference(float(limit_fraction(ratio)), "β/(1+β)"),
    )


def _along_ratio(depth: int, ratio: float) -> Figure:
    return worded(
        "along_beta",
        Line(numbers(_RATIOS), numbers(peak_length(depth, _RATIOS) / depth), "peak"),
        Line(numbers(_RATIOS), numbers(path_moments(depth, _RATIOS).mean / depth), "mean"),
        Line(numbers(_RATIOS), numbers(limit_fraction(_RATIOS)), "β/(1+β)", dashed=True, colour="ink"),
        Reference(ratio, "here", "x"),
    )


def _complexity(depth: int, ratio: float) -> Figure:
    kept = network_complexity(depth, _RATIOS, shortest=1)
    dropped = network_complexity(depth, _RATIOS, shortest=2)
    return worded(
        "complexity",
        Line(numbers(_RATIOS), numbers(kept), "all paths, as the network has them"),
        Line(numbers(_RATIOS), numbers(dropped), "without paths of length 1, as the paper draws it", dashed=True),
        Reference(ratio, "here", "x"),
    )


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
        Prediction("in phase", f"β = {in_words(ratio)}", squared_binomial(plain.blocks, ratio)),
        Prediction("at right angles", f"gain = {in_words(gain)}", binomial(plain.blocks, gain)),
    )


def _draw_network(values: Values, measured: ScaledSpectrum | None) -> Drawing:
    """The measured spectrum beside the theory's."""
    name, factor = values["model"], values["factor"]
    code = snippet("path_spectrum", own=values, shape=_input_shape(name), samples=_SAMPLES)
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
            *((f"distance, {law.name}", percent(law.distance(scaled))) for law in predictions),
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


def _trained(values: Values, progress: Progress) -> DepthHistory:
    """The path spectra of a network while it learns the embedded digits."""
    name = values["learner"]
    digits = take(data.fit_to(data.load("sample"), _input_shape(name)), _DIGITS)
    rates = {"learning_rate": values["rate"], "momentum": 0.9, "weight_decay": values["decay"]}
    recipe = Recipe(**rates, batch_size=32, steps=_STEPS, seed=values["seed"])
    options: dict[str, Any] = {"every": _EVERY, "samples": _SAMPLES, "forces": False}
    return depth_during_training(zoo.build(name, values["seed"]), digits, recipe, progress=progress, **options)


def _draw_training(values: Values, history: DepthHistory | None) -> Drawing:
    """The spectrum at a moment beside the first one, and depth and loss against the steps."""
    name = values["learner"]
    code = snippet("training", own=values, shape=_input_shape(name), digits=_DIGITS, steps=_STEPS, every=_EVERY)
    if history is None:
        return Drawing(says=f"Training {name} for {_STEPS} steps …", code=code)
    moment = int((history.steps <= values["moment"]).sum()) - 1
    step, depths, shares = int(history.steps[moment]), history.mean_depth, history.distribution
    change = float(depths[moment] - depths[0])
    word = "as deep as before" if abs(change) < _STILL else "deeper" if change > 0 else "shallower"
    orders, steps = range(shares.shape[1]), numbers(history.steps)
    now = Reference(float(step), "now", "x")
    spectra = (
        Bars(tuple(map(str, orders)), numbers(shares[moment]), f"after {step} steps"),
        Line(numbers(orders), numbers(shares[0]), "before training", dashed=True, colour=INK),
    )
    ended = "" if history.outcome == "finished" else f" The training ended early: {history.outcome}."
    return Drawing(
        figures=(
            worded("spectrum_in_training", *spectra, step=step),
            worded("depth_in_training", Line(steps, numbers(depths)), now, every=_EVERY, samples=_SAMPLES),
            worded("loss_in_training", Line(steps, numbers(history.losses)), now),
        ),
        says=f"After {step} steps the energy of {name} passes {depths[moment]:.2f} of its {len(orders) - 1} branches, "
        f"{depths[0]:.2f} before training: it is {word}.{ended}",
        facts=(
            ("mean depth, branches", f"{depths[moment]:.2f} of {len(orders) - 1}"),
            ("before training", f"{depths[0]:.2f}"),
            ("at the end", f"{depths[-1]:.2f}"),
            ("loss", in_words(float(history.losses[moment]))),
        ),
        code=code,
        notes=history.notes,
    )


def _spectrum(reading: PathSpectrum, predictions: Sequence[Prediction]) -> Figure:
    orders = numbers(torch.arange(len(reading.energy)))
    lines = [
        Line(orders, numbers(law.energies), f"theory, {law.name} ({law.parameter})", bool(index), "" if index else INK)
        for index, law in enumerate(predictions)
    ]
    return worded(
        "measured_spectrum",
        Bars(tuple(str(int(order)) for order in orders), numbers(reading.distribution), "measured"),
        *lines,
    )


def _before_and_after(measured: ScaledSpectrum) -> Figure:
    orders = numbers(torch.arange(len(measured.plain.energy)))
    return worded(
        "before_and_after",
        Line(orders, numbers(measured.plain.distribution), "as it is", dashed=True),
        Line(orders, numbers(measured.scaled.distribution), "branches scaled"),
    )
