"""The runs of figure 2, for a preset and a seed."""

from dataclasses import replace

from skiplens.studies.macdonald2023_regularity.digits import measure
from skiplens.studies.macdonald2023_regularity.digits.settings import (
    SIZES,
    Blocks,
    Composites,
    Digits,
    Losses,
    Parameters,
    Sizes,
    Starts,
)
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run


def fig2(preset: Preset, seed: int) -> list[Run]:
    """Losses, Jacobians to the logits in training and before it, in the parameters, and of blocks."""
    sizes = SIZES[preset]
    planned = (
        ("digit_losses", Losses(trials=sizes.trials), sizes.loss_runs, 6.0),
        ("digit_composites", Composites(moments=sizes.moments), sizes.composites, 7.0),
        ("digit_starts", Starts(), sizes.starts, 1.5),
        ("digit_starts", Starts(final_norm=False), sizes.without_norm, 1.5),
        ("digit_parameters", Parameters(), sizes.parameters, 3.5),
        ("digit_blocks", Blocks(), sizes.blocks, 2.0),
    )
    return [
        run
        for name, base, count, seconds in planned
        for run in _repeated(name, _sized(base, sizes), count, seed, seconds)
    ]


def _sized(base: Digits, sizes: Sizes) -> Digits:
    return replace(base, images=sizes.images, source=sizes.source)


def _repeated(name: str, base: Digits, count: int, seed: int, seconds: float) -> list[Run]:
    return replicated(f"{measure.__name__}:{name}", base, count, seed, cost=lambda _: seconds)
