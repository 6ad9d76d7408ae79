"""The spectrum of a real network whose branches are multiplied by a factor, beside the theory's."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from skiplens import data, zoo
from skiplens.base.errors import NotResidualError
from skiplens.base.progress import Progress
from skiplens.edits.initialisation import scale_branch_ends
from skiplens.explorer.view import Drawing, Values
from skiplens.graph.batch import take
from skiplens.graph.dissect import dissect
from skiplens.graph.network import ResidualNetwork
from skiplens.paths.laws import binomial, fit_laws, squared_binomial
from skiplens.paths.reading import PathSpectrum
from skiplens.paths.spectrum import measure
from skiplens.plots.figure import Bars, Figure, Line, numbers
from skiplens.plots.section import number_in_words

SAMPLES = 16

FAR = 0.15
"""A total variation above which a law does not describe a spectrum."""

_MOST_NETWORKS = 4  # taken apart and kept; the largest has 11 million weights


@dataclass(frozen=True, eq=False)
class ScaledSpectrum:
    """What was measured: the network as it is, and with its branches multiplied by the factor."""

    plain: PathSpectrum
    scaled: PathSpectrum


def measure_network(values: Values, progress: Progress) -> ScaledSpectrum:
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


@lru_cache(_MOST_NETWORKS)
def _taken_apart(name: str, seed: int) -> tuple[ResidualNetwork, Any]:
    """The network and its inputs; the graph reads whatever weights a model has, so it serves every factor."""
    model = zoo.build(name, seed)
    shape = zoo.entry(name).settings({}).input_shape()
    inputs = take(data.fit_to(data.load("sample"), shape), SAMPLES).inputs
    return dissect(model, inputs), inputs


def draw_network(values: Values, measured: ScaledSpectrum | None) -> Drawing:
    """The measured spectrum beside the theory's."""
    if measured is None:
        return Drawing(says=f"Measuring {values['model']} …", code=_code(values))
    reading = measured.scaled
    predictions = predict(measured.plain, values["factor"])
    return Drawing(
        figures=(_spectrum(reading, predictions), _before_and_after(measured)),
        says=_says(values, measured, predictions),
        facts=(
            ("mean depth, branches", f"{reading.mean_depth:.2f} of {reading.blocks}"),
            ("before scaling", f"{measured.plain.mean_depth:.2f}"),
            ("peak", str(reading.peak_depth)),
            *((f"distance, {law.name}", f"{law.distance(reading):.0%}") for law in predictions),
            ("nearest law of all", reading.law.replace("_", " ") or "none"),
        ),
        code=_code(values),
        notes=(
            f"Measured on {SAMPLES} embedded images. A prediction takes the parameter that gives the network its mean "
            "depth as it is, then multiplies branches by the factor. Distance: total variation, 0 % is the same "
            "spectrum, 100 % has nothing in common.",
            *reading.notes,
        ),
    )


@dataclass(frozen=True, eq=False)
class Prediction:
    """The spectrum that a law predicts for the scaled network.

    Attributes:
        name: How its branches add up.
        parameter: The law's parameter and its value, in words.
        energies: The shares of energy for 0..q branches.
    """

    name: str
    parameter: str
    energies: Tensor

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


def _says(values: Values, measured: ScaledSpectrum, predictions: Sequence[Prediction]) -> str:
    before, after, factor = measured.plain.mean_depth, measured.scaled.mean_depth, values["factor"]
    if factor == 1:
        opening = (
            f"As it is, the energy of {values['model']} passes {after:.1f} of its {measured.plain.blocks} branches."
        )
    else:
        opening = (
            f"With branches times {factor:g} the mean depth of {values['model']} goes from {before:.1f} to {after:.1f}."
        )
    nearest = min(predictions, key=lambda law: law.distance(measured.scaled))
    if nearest.distance(measured.scaled) > FAR:
        return f"{opening} Neither law fits here: activations and normalisation change with the factor, too."
    return f"{opening} It does what theory says of branches that add up {nearest.name}."


def _spectrum(reading: PathSpectrum, predictions: Sequence[Prediction]) -> Figure:
    orders = numbers(torch.arange(len(reading.energy)))
    measured = Bars(tuple(str(int(order)) for order in orders), numbers(reading.distribution), "measured")
    lines = [
        Line(orders, numbers(law.energies), f"theory, {law.name} ({law.parameter})", dashed=bool(index))
        for index, law in enumerate(predictions)
    ]
    return Figure(
        "measured_spectrum",
        "Measured path spectrum and the theory's",
        "Bars: share of energy of all paths through exactly so many branches. Lines: predicted from the network before "
        "scaling; in phase is the paper's law, at right angles is what random signs give.",
        "branches on the path",
        "share of the energy",
        (measured, *lines),
    )


def _before_and_after(measured: ScaledSpectrum) -> Figure:
    orders = numbers(torch.arange(len(measured.plain.energy)))
    return Figure(
        "before_and_after",
        "Before and after scaling",
        "What the factor does: weak branches leave short paths, strong ones make paths through all blocks win.",
        "branches on the path",
        "share of the energy",
        (
            Line(orders, numbers(measured.plain.distribution), "as it is", dashed=True),
            Line(orders, numbers(measured.scaled.distribution), "branches scaled"),
        ),
    )


def _code(values: Values) -> str:
    name = values["model"]
    shape = zoo.entry(name).settings({}).input_shape()
    return (
        "import skiplens as sl\n"
        "from skiplens import data\n"
        "from skiplens.graph.batch import take\n"
        "from skiplens.graph import zoo\n"
        "from skiplens.edits.initialisation import scale_branch_ends\n\n"
        f"model = zoo.build({name!r}, seed={values['seed']})\n"
        f"model = scale_branch_ends(model, zoo.branch_parameters(model), {values['factor']!r})\n"
        f"inputs = take(data.fit_to(data.load('sample'), {shape}), {SAMPLES}).inputs\n"
        "result = sl.path_spectrum(model, inputs).distribution\n"
    )
