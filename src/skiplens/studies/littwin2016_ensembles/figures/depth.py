"""Depth during training: mean depth against steps, and spectra before and after."""

from collections.abc import Sequence

from skiplens.figures import Band, Figure, Line
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.selection import stacked

Kind = tuple[str, str, bool]


def depth_during_training(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Depth against steps for all networks, then the spectra of each; none where there were no data."""
    kinds = list(dict.fromkeys(_kind(reading) for reading in readings))
    if not kinds:
        return ()
    return (_depths(readings, kinds), *(_spectra(readings, kind) for kind in kinds))


def _kind(reading: Measurement) -> Kind:
    return reading.setting("images"), reading.setting("network"), reading.setting("normalised")


def _name(kind: Kind) -> str:
    images, network, normalised = kind
    return f"{network}, {'batch norm' if normalised else 'no batch norm'}, {images}"


def _settings(kind: Kind) -> dict[str, object]:
    return dict(zip(("images", "network", "normalised"), kind, strict=True))


def _depths(readings: Sequence[Measurement], kinds: list[Kind]) -> Figure:
    marks: list[Band | Line] = []
    for index, kind in enumerate(kinds):
        steps, depths = (stacked(readings, name, "images", **_settings(kind)) for name in ("step", "mean_depth"))
        marks += curve(steps[0], depths, _name(kind), index)
    return Figure(
        name="depth",
        title="Mean depth during training",
        caption="How many branches the energy of the logits passes on average; means over seeds with standard "
        "deviations. The conv net gets deeper, the dense one with batch norm shallower.",
        x_label="steps",
        y_label="mean depth (branches)",
        marks=tuple(marks),
    )


def _spectra(readings: Sequence[Measurement], kind: Kind) -> Figure:
    shares = stacked(readings, "share", "images", **_settings(kind))
    steps = stacked(readings, "step", "images", **_settings(kind))[0]
    marks: list[Band | Line] = []
    for index, look in enumerate((0, -1)):
        marks += curve(range(shares.shape[2]), shares[:, look], f"step {int(steps[look])}", index)
    return Figure(
        name=f"spectrum_{kind[1]}_{'scaled' if kind[2] else 'plain'}_{kind[0]}",
        title=f"Path spectrum before and after training: {_name(kind)}",
        caption="Share of the energy of the logits that passes so many branches; means and deviations over seeds.",
        x_label="branches on the path",
        y_label="share of the energy",
        marks=tuple(marks),
    )
