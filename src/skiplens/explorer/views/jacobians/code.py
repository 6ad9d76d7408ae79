"""The lines of Python that make the numbers of each topic again."""

from dataclasses import fields

from skiplens.explorer.views.jacobians.block import RandomBlocks
from skiplens.explorer.views.jacobians.layer import RandomLayer
from skiplens.explorer.views.jacobians.theorem import TheoremOptions

_LAYER = """\
import torch
from skiplens.core.randomness import Randomness
from skiplens.theory.random_singular_values import SingularValueLaw
W = {scale} / {width}**0.5 * torch.randn({width}, {width}, generator=Randomness({seed}).torch(), dtype=torch.float64)
result = torch.linalg.svdvals(torch.eye({width}) + W)
smallest, largest = SingularValueLaw({scale}, has_skip=True).support
"""

_BLOCK = """\
import torch
from skiplens.explorer.views.jacobians.block import RandomBlocks
blocks = RandomBlocks(scale={scale}, width={width}, seed={seed})
result = {{name: torch.linalg.svdvals(jacobian) for name, jacobian in blocks.shrinking().items()}}
"""

_MNIST = """
from skiplens.explorer.views.jacobians.mnist_blocks import measured_blocks
measured = measured_blocks(scale={scale}, seed={seed}).singular_values
"""

_THEOREM = """\
from skiplens.explorer.views.jacobians.theorem import TheoremOptions, case_of
from skiplens.theory.hypotheses import check
result = {{one.label: one.verdict for one in check(case_of(TheoremOptions({options})))}}
"""


def layer_code(layer: RandomLayer) -> str:
    """The singular values of I + W, and the range they have at infinite width."""
    return _LAYER.format(scale=layer.scale, width=layer.width, seed=layer.seed)


def block_code(blocks: RandomBlocks, with_mnist: bool) -> str:
    """The singular values of the blocks that shrink, and those measured if they were asked for."""
    drawn = _BLOCK.format(scale=blocks.scale, width=blocks.width, seed=blocks.seed)
    return drawn + _MNIST.format(scale=blocks.scale, seed=blocks.seed) if with_mnist else drawn


def theorem_code(options: TheoremOptions) -> str:
    """The verdict on each hypothesis."""
    changed = (entry for entry in fields(options) if getattr(options, entry.name) != entry.default)
    return _THEOREM.format(options=", ".join(f"{entry.name}={getattr(options, entry.name)!r}" for entry in changed))
