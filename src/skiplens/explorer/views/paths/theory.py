"""The closed forms of the paths view: weights by length, how they go with depth and with β, and the complexity."""

import torch

from skiplens.explorer.drawing import Drawing
from skiplens.explorer.view import Values
from skiplens.explorer.views.paths.controls import SCALE
from skiplens.figures import Band, Figure, Line, Reference
from skiplens.figures.figure import numbers
from skiplens.figures.style import colour
from skiplens.reports.section import number_in_words
from skiplens.theory.path_weights import (
    BranchStatistics,
    length_quantile,
    limit_fraction,
    path_moments,
    path_weights,
    peak_length,
)
from skiplens.theory.spin_glass import network_complexity

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
