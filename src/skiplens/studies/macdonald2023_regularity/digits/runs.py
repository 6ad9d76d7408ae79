"""The runs of figure 2, for a preset and a seed."""

from skiplens.studies.macdonald2023_regularity.digits import measure
from skiplens.studies.macdonald2023_regularity.digits.settings import (
    SIZES,
    Blocks,
    Composites,
    Digits,
    Losses,
    Parameters,
    Starts,
)
from skiplens.studies.replicates import replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run


def fig2(preset: Preset, seed: int) -> list[Run]:
    """Losses, Jacobians to the logits in training and before it, in the parameters, and of blocks."""
    sizes = SIZES[preset]
    source = sizes.source
    planned: tuple[tuple[str, Digits, int, float], ...] = (
        ("digit_losses", Losses(source=source), sizes.loss_runs, 6.0),
        ("digit_composites", Composites(source=source, moments=sizes.moments), sizes.composites, 9.0),
        ("digit_starts", Starts(source=source), sizes.starts, 4.5),
        ("digit_parameters", Parameters(source=source), sizes.parameters, 3.5),
        ("digit_blocks", Blocks(source=source), sizes.blocks, 2.0),
    )
    return [run for name, base, count, seconds in planned for run in _repeated(name, base, (count, seed), seconds)]


def _repeated(name: str, base: Digits, count_and_seed: tuple[int, int], seconds: float) -> list[Run]:
    return replicated(f"{measure.__name__}:{name}", base, *count_and_seed, cost=lambda _: seconds)
