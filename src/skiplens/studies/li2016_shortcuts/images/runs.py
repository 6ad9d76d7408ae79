"""The runs of both figures; none where CIFAR-10 is not on this machine."""

import dataclasses
from typing import Any

from skiplens.studies.images import missing, needs
from skiplens.studies.li2016_shortcuts.images.settings import ShortcutTraining, Sizes
from skiplens.studies.replicates import replicated
from skiplens.sweeps import Run

MEASURE = "skiplens.studies.li2016_shortcuts.images.measure:shortcut_training"


def fig2(sizes: Sizes, seed: int) -> list[Run]:
    """Shortcuts over two convolutions, several depths."""
    return _runs(sizes.base, sizes.norm_epochs, sizes.norm_runs, seed, depth=sizes.norm_depths)


def fig9(sizes: Sizes, seed: int) -> list[Run]:
    """Several shortcut depths and depths."""
    axes = {"depth": sizes.error_depths, "shortcut_depth": sizes.shortcut_depths}
    return _runs(sizes.base, sizes.error_epochs, sizes.error_runs, seed, **axes)


def _runs(base: ShortcutTraining, epochs: int, count: int, seed: int, **axes: Any) -> list[Run]:
    if missing(base.data):
        return []
    base = dataclasses.replace(base, epochs=epochs, milestones=_milestones(epochs))
    found = replicated(MEASURE, base, count, seed, _cost, **axes)
    return [dataclasses.replace(run, needs=needs(base.gpu)) for run in found]


def _milestones(epochs: int) -> tuple[int, ...]:
    """Epochs 81 and 122 of the paper's 164 and 200; of fewer, one half and three quarters."""
    if epochs >= ShortcutTraining().epochs:
        return ShortcutTraining().milestones
    return tuple(sorted({max(1, epochs // 2), max(1, 3 * epochs // 4)}))


def _cost(settings: ShortcutTraining) -> float:
    return settings.epochs * (settings.images or 50_000) * settings.depth * settings.width / 1e6
