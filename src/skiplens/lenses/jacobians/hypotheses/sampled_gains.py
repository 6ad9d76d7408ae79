"""The slopes of a model's branches as they are: |Jg|_2 at the present weights on a few samples."""

import torch

from skiplens.derivatives.functional import transformable
from skiplens.derivatives.jacobian import Linearised, couples_samples
from skiplens.derivatives.jacobian.per_sample import keeps_samples
from skiplens.lenses.jacobians.hypotheses.view import GraphView
from skiplens.linalg.singular_values import singular_density
from skiplens.residual.block import ResidualBlock
from skiplens.residual.parts import part_function
from skiplens.theory.hypotheses import SampledGain

STEPS = 8
"""Of Golub-Kahan: what they find lies below the largest singular value, by a few percent at most on real networks."""
MOST_NUMBERS = 2_000_000
"""Branches with larger inputs are not measured: a checker answers in seconds."""


def sampled_gains(view: GraphView, generator: torch.Generator, is_whole: bool) -> dict[str, SampledGain]:
    """The measured slope of each outermost block whose branch has one, by the block's name.

    Args:
        view: The model's graph, with the samples it was made with.
        generator: Draws the start vectors.
        is_whole: Whether these samples are all of the data.
    """
    blocks = [block for block in view.network.blocks if block.parent is None]
    with torch.no_grad():
        inputs = view.network.run([block.input for block in blocks])
    found = {}
    for block in blocks:
        gain = _gain(view, block, inputs[block.input], generator, is_whole)
        if gain is not None:
            found[block.name] = gain
    return found


def _gain(
    view: GraphView, block: ResidualBlock, point: torch.Tensor, generator: torch.Generator, is_whole: bool
) -> SampledGain | None:
    if not point.is_floating_point() or not 0 < point.numel() <= MOST_NUMBERS:
        return None
    with transformable():
        branch = Linearised(part_function(view.network, block, "branch"), point)
        start = torch.randn((1, branch.columns), generator=generator, device=generator.device).to(point)
        try:
            largest = float(singular_density(branch.forward, branch.adjoint, start, STEPS).nodes[0])
            alone = keeps_samples(branch, view.samples) and not couples_samples(branch, view.samples, generator)
        except RuntimeError:  # an operation without the derivatives that torch needs for this
            return None
    return SampledGain(largest, is_whole or alone)
