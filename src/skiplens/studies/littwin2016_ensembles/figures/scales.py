"""Figures 1(d) and 1(e), with the depth of the same networks beside them."""

from collections.abc import Sequence

from skiplens.core.axes import Tensor
from skiplens.figures import Figure, Points, Reference
from skiplens.figures.figure import Line, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.littwin2016_ensembles.claims.scales import lengths, norms, scales
from skiplens.studies.selection import stacked
from skiplens.theory.finite_width import estimate

SCALED = {
    "literal": "Eq. 20 as printed",
    "centred": "centred branches",
    "large_head": "centred, logits start large",
}
PLAIN = {"plain": "small start, 0.3/√inputs", "plain_large": "usual start, 1/√inputs"}


def fig1d(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The scales by layer at several stages of training, for each setting, and the depth."""
    return (*(_by_layer(readings, setting) for setting in SCALED), _depth(readings, SCALED))


def fig1e(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The norm of the weights against the iteration, and the depth."""
    relative = {setting: norms(readings, setting) / norms(readings, setting)[:, :1] for setting in PLAIN}
    start = float(norms(readings, "plain")[:, 0].mean())
    norm = Figure(
        name="weight_norm",
        title="Figure 1e: norm of the weights without batch normalisation",
        caption=f"Means over seeds with standard errors, relative to the start ({start:.2f} for the small one). From "
        "small weights the norm grows all the time; from the usual ones it falls first.",
        x_label="iteration",
        y_label="‖W‖ over its start",
        marks=(
            *(mark for i, s in enumerate(PLAIN) for mark in _curve(_steps(readings, s), relative[s], PLAIN[s], i)),
            Reference(1.0),
        ),
    )
    return norm, _depth(readings, PLAIN)


def _by_layer(readings: Sequence[Measurement], setting: str) -> Figure:
    found = scales(readings, setting)
    layers = numbers(range(1, found.shape[2] + 1))
    marks: list[Points | Line] = []
    for look, step in enumerate(_steps(readings, setting)):
        marks += _curve(layers, found[:, look], f"step {step:.0f}", look)
    return Figure(
        name=f"scales_{setting}",
        title=f"Figure 1d: batch-norm scales, {SCALED[setting]}",
        caption=f"λ of each layer at stages of training, means over seeds with standard errors. {_seen(setting)}",
        x_label="layer l",
        y_label="λ_l",
        marks=tuple(marks),
    )


def _seen(setting: str) -> str:
    return {
        "literal": "Later lines lie higher, as in the paper.",
        "centred": "The first layer's scale grows most by far.",
        "large_head": "With logits that start large, the scales shrink.",
    }[setting]


def _depth(readings: Sequence[Measurement], names: dict[str, str]) -> Figure:
    marks: list[Points | Line] = []
    for index, (setting, name) in enumerate(names.items()):
        marks += _curve(_steps(readings, setting), lengths(readings, setting), name, index)
    return Figure(
        name="depth",
        title="Mean path length of the same networks, 10 layers",
        caption="Energy-weighted mean length of the paths to the last layer, means over seeds with standard errors.",
        x_label="iteration",
        y_label="mean path length",
        marks=tuple(marks),
    )


def _curve(places: tuple[float, ...], values: Tensor, name: str, index: int) -> list[Points | Line]:
    """Means over replicates as points with error bars, joined by a line of the same colour."""
    found = estimate(values)
    heights = numbers(found.value)
    return [
        Points(places, heights, name, numbers(found.standard_error)),
        Line(places, heights, colour=colour(index), faint=True),
    ]


def _steps(readings: Sequence[Measurement], setting: str) -> tuple[float, ...]:
    return numbers(stacked(readings, "step", "gaussians", setting=setting)[0])
