"""The gradient of each block's weights by the number of branches that the backward signal passes."""

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.derivatives.polynomial import PathOrders, pull_back, tangent_plan
from skiplens.derivatives.polynomial.stacks import padded
from skiplens.lenses.paths.expanders import Chunk, Gradient
from skiplens.residual import ResidualNetwork


def weight_energies(chunks: list[Chunk], direction: Tensor | None, randomness: Randomness) -> dict[str, Tensor]:
    """For each block with weights the energy of their gradient in each order.

    The gradients of all samples add up before energies are taken, so the whole batch must fit in one piece.
    """
    if len(chunks) > 1:
        raise InvalidInputError(
            f"weights=True adds up the gradients of all samples, but memory holds them only in {len(chunks)} pieces. "
            "Look at fewer samples."
        )
    chunk = chunks[0]
    network = chunk.network
    wanted = {name for block in network.blocks for name in block.branch.parameters}
    expander = Gradient.of(chunk, direction, randomness.child("direction", 0))
    plan = tangent_plan(network, network.node(network.output), wanted)
    found: dict[str, Tensor] = {}
    for one in pull_back(plan, PathOrders(), expander.cotangent):
        name = network.exported.parameters.get(one.name)
        if name is not None:
            found[name] = one.stack.double().flatten(1).square().sum(1).cpu()
    return {block.name: _sum(network, block.branch.parameters, found) for block in network.blocks}


def _sum(network: ResidualNetwork, names: tuple[str, ...], found: dict[str, Tensor]) -> Tensor:
    energies = [found[name] for name in names if name in found]
    length = 1 + len(network.blocks)
    return sum((padded(energy, length) for energy in energies), torch.zeros(length, dtype=torch.float64))
