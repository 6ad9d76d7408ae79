"""Figures 1(d) and 1(e), with the depth of the same networks beside them."""

from collections.abc import Sequence

from skiplens.figures import Band, Figure, Line, Reference
from skiplens.figures.figure import numbers
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.littwin2016_ensembles.claims.scales import lengths, norms, scales
from skiplens.studies.selection import stacked

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
        caption=f"Means over seeds with standard deviations, relative to the start ({start:.2f} for the small one).",
        x_label="iteration",
        y_label="‖W‖ over its start",
        marks=(
            *(mark for i, s in enumerate(PLAIN) for mark in curve(_steps(readings, s), relative[s], PLAIN[s], i)),
            Reference(1.0),
        ),
    )
    return norm, _depth(readings, PLAIN)


def _by_layer(readings: Sequence[Measurement], setting: str) -> Figure:
    found = scales(readings, setting)
    layers = numbers(range(1, found.shape[2] + 1))
    marks: list[Band | Line] = []
    for look, step in enumerate(_steps(readings, setting)):
        marks += curve(layers, found[:, look], f"step {step:.0f}", look)
    return Figure(
        name=f"scales_{setting}",
        title=f"Figure 1d: batch-norm scales, {SCALED[setting]}",
        caption="λ of each layer at stages of training, means over seeds with standard deviations.",
        x_label="layer l",
        y_label="λ_l",
        marks=tuple(marks),
    )


def _depth(readings: Sequence[Measurement], names: dict[str, str]) -> Figure:
    marks: list[Band | Line] = []
    for index, (setting, name) in enumerate(names.items()):
        marks += curve(_steps(readings, setting), lengths(readings, setting), name, index)
    return Figure(
        name="depth",
        title="Mean path length of the same networks, 10 layers",
        caption="Energy-weighted mean length of the paths to the last layer, means and deviations over seeds.",
        x_label="iteration",
        y_label="mean path length",
        marks=tuple(marks),
    )


def _steps(readings: Sequence[Measurement], setting: str) -> tuple[float, ...]:
    return numbers(stacked(readings, "step", "gaussians", setting=setting)[0])
