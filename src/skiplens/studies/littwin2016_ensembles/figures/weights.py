"""Figures 1(a-c), theorems 1 and 2 and lemma 4."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.figures import Band, Bars, Figure, Line, Points, Reference
from skiplens.figures.figure import numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.littwin2016_ensembles.settings import RATIOS
from skiplens.studies.selection import chosen, stacked
from skiplens.theory.finite_width import estimate
from skiplens.theory.path_laws import fit_named_law
from skiplens.theory.path_weights import limit_fraction


def histogram(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """A panel of figure 1(a-c)."""
    reading = readings[0]
    beta, depth = reading.setting("depth_ratio"), reading.setting("depth")
    panel = "abc"[RATIOS.index(beta)]
    peak = int(reading["weight"].argmax()) + 1
    return (
        Figure(
            name="histogram",
            title=f"Figure 1{panel}: path weights, β = {beta:g}, p = {depth}",
            caption=f"Paths of length {peak} weigh most; the line is βp/(1+β) = {depth * beta / (1 + beta):.1f}.",
            x_label="path length r",
            y_label="weight ε_r",
            marks=(
                # A bar for length 0, which no path has, so that bars stand at their lengths.
                Bars(tuple(map(str, range(depth + 1))), (0.0, *numbers(reading["weight"])), "ε_r"),
                Reference(depth * beta / (1 + beta), "βp/(1+β)", axis="x"),
            ),
        ),
    )


def thm1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The peak over the depth against the depth, and measured spectra."""
    marks: list[Line | Reference] = []
    for index, reading in enumerate(chosen(readings, "peaks")):
        beta = reading.setting("depth_ratio")
        shares = numbers(reading["share_of_depth"])
        marks.append(Line(numbers(reading["depth"]), shares, f"β = {beta:g}", colour=colour(index)))
        limit = float(limit_fraction(beta))
        ends = numbers([reading["depth"][0], reading["depth"][-1]])
        marks.append(Line(ends, (limit, limit), dashed=True, colour=colour(index)))
    return (
        Figure(
            name="peak",
            title="Theorem 1: the most weighted length over the depth",
            caption="Each line runs into β/(1+β) (dashed), from which it is never farther than one length.",
            x_label="depth p",
            y_label="argmax ε_r / p",
            marks=tuple(marks),
            x_log=True,
        ),
        _spectrum(readings, "relu", "R(Wx)"),
    )


def thm2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The energy outside the band against the depth, and measured spectra with both laws."""
    marks: list[Line] = []
    for index, reading in enumerate(chosen(readings, "tails")):
        depth, decades = reading["depth"].double(), -reading["log_outside"] / math.log(10)
        name = f"β = {reading.setting('depth_ratio'):g}"
        marks.append(Line(numbers(depth), numbers(decades), name, colour=colour(index)))
        rate = float(reading["limiting_rate"]) / math.log(10)
        marks.append(Line(numbers(depth), numbers(rate * depth), dashed=True, colour=colour(index)))
    return (
        Figure(
            name="tails",
            title="Theorem 2: energy outside ±20 % of the peak",
            caption="How many powers of ten the energy outside the band has fallen: linear in the depth, at the rate "
            "2 min KL (dashed). At p = 100 and β = 0.1 half of the energy is still outside.",
            x_label="depth p",
            y_label="-log10 of the energy outside",
            marks=tuple(marks),
            x_log=True,
            y_log=True,
        ),
        _spectrum(readings, "relu", "R(Wx)"),
        _spectrum(readings, "two_layer", "V R(Wx)"),
    )


def lemma4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The ratio that makes each length the peak, and the depth of networks against a common factor."""
    (reading,) = chosen(readings, "reach")
    inner = slice(1, -1)
    wanted = numbers(reading["wanted"][inner])
    low, high = (numbers(reading[name][inner]) for name in ("lowest_ratio", "highest_ratio"))
    return (
        Figure(
            name="reach",
            title="Lemma 4: the scale that makes a length the peak, p = 100",
            caption="Any length is the peak for the ratios between (k-1)/(p-k+1) and k/(p-k). C = β √Λ/(ρn).",
            x_label="wanted length k",
            y_label="β",
            marks=(
                Band(wanted, low, high, "all ratios with this peak"),
                Line(wanted, numbers(reading["depth_ratio"][inner]), "their geometric mean"),
            ),
            y_log=True,
        ),
        _scaled(readings),
    )


def _scaled(readings: Sequence[Measurement]) -> Figure:
    factors = stacked(readings, "factor", "spectra", scaling="none")[0]
    plain = estimate(stacked(readings, "mean", "spectra", scaling="none"))
    normed = estimate(stacked(readings, "mean", "spectra", scaling="centred"))
    places = stacked(readings, "factor", "spectra", scaling="centred")[0]
    return Figure(
        name="scaling",
        title="Lemma 4 measured: a common factor, 10 blocks R(Wx)",
        caption="Random networks, means with standard errors. A factor of all weights moves the depth from 0 to 10; a "
        "factor of all batch-norm scales does not move it at all.",
        x_label="common factor",
        y_label="mean depth (branches)",
        marks=(
            Points(numbers(factors), numbers(plain.value), "of the weights", numbers(plain.standard_error)),
            Points(numbers(places), numbers(normed.value), "of batch-norm scales", numbers(normed.standard_error)),
        ),
        x_log=True,
    )


def _spectrum(readings: Sequence[Measurement], branch: str, name: str) -> Figure:
    shares = stacked(readings, "share", "spectra", branch=branch)[:, 0]
    found, lengths = estimate(shares), numbers(range(1, shares.shape[1] + 1))
    return Figure(
        name=f"spectrum_{branch}",
        title=f"Path spectrum of random networks, branches {name}, {shares.shape[1] - 1} blocks",
        caption=f"Points are means over networks with standard errors. The squared law is the paper's: {_fits(branch)}",
        x_label="path length",
        y_label="share of the energy",
        marks=(
            Points(lengths, numbers(found.value), "random networks", numbers(found.standard_error)),
            _law(found.value, "squared_binomial", "squared law ε²"),
            _law(found.value, "binomial", "binomial law"),
        ),
    )


def _fits(branch: str) -> str:
    if branch == "relu":
        return "it fits branches with a positive mean, which add in phase."
    return "branches with mean zero follow the binomial law, with twice the variance."


def _law(shares: Tensor, name: str, title: str) -> Line:
    fit = fit_named_law(shares, name)
    lengths = torch.arange(1, len(shares) + 1)
    return Line(numbers(lengths), numbers(fit.energies), f"{title}, β = {fit.depth_ratio:.2f}", name == "binomial")
