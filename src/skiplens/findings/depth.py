"""An effective depth far below the nominal one, and the blocks that do not contribute."""

from collections.abc import Iterator

import torch

from skiplens.findings.finding import Finding, listed
from skiplens.findings.rule import Rule
from skiplens.readings import PathSpectrum, SignalReading

FAR_BELOW = 0.5
"""Share of the depth of a network with branches of power 1/L under which a network counts as shallow."""

LITTLE = 0.01
"""Share of the least contribution of such a network's blocks under which a block counts as idle."""

SOURCE = (
    "independent branches that each add 1/L of the power, the scale of corollary 1 of 'Residual Tangent Kernels': path "
    "lengths follow Binomial(L, 1/(L + 1)), the incoherent form of 'The Loss Surface of Residual Networks', Eq. 16"
)


def judge_depth(paths: PathSpectrum, signal: SignalReading) -> Iterator[Finding]:
    """How deep the network is, against the shallowest law of healthy networks."""
    if not paths.blocks or signal.broken or signal.fresh_norms or not paths.total_energy > 0:
        return
    expected = paths.blocks / (paths.blocks + 1)
    idle = idle_blocks(paths, LITTLE / paths.blocks)
    if paths.mean_depth >= FAR_BELOW * expected:
        return
    lost = _lost(paths, signal)
    yield Finding(
        rule="effective_depth",
        severity="warning" if 2 * len(lost) > paths.blocks else "note",
        sentence=f"The network is shallow: its {paths.of} passes {paths.mean_depth:.2g} of {paths.blocks} branches on "
        f"average, where branches that each add 1/L of the power would give {expected:.2g}{_idle_words(idle)}.",
        number=paths.mean_depth,
        threshold=FAR_BELOW * expected,
        source=SOURCE,
        change="Expected of branches that start near zero: look again after some training. Otherwise give these "
        "branches a larger scale (γ of their last normalisation, or their last layer), or leave the blocks out.",
        where=idle,
    )


def idle_blocks(paths: PathSpectrum, least: float) -> tuple[str, ...]:
    """Blocks whose paths carry less than this share of the energy."""
    if not len(paths.block_energy):
        return ()
    shares = (paths.block_energy / paths.total_energy).tolist()
    return tuple(name for name, share in zip(paths.block_names, shares, strict=True) if share < least)


def _lost(paths: PathSpectrum, signal: SignalReading) -> tuple[str, ...]:
    """Blocks whose contribution is lost in rounding, though they were not started at zero."""
    started = {name for name, order in zip(signal.block_names, signal.zero_factors.tolist(), strict=True) if order}
    rounding = torch.finfo(getattr(torch, signal.precision)).eps
    return tuple(name for name in idle_blocks(paths, rounding) if name not in started)


def _idle_words(idle: tuple[str, ...]) -> str:
    return f"; these blocks contribute next to nothing: {listed(idle)}" if idle else ""


RULES = (Rule("effective_depth", (PathSpectrum, SignalReading), judge_depth),)
