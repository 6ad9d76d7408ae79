"""The gradient of each block's weights, by the branches behind them and by those of the whole path."""

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.derivatives.polynomial import PathOrders, pull_back, tangent_plan, weight_paths
from skiplens.derivatives.polynomial.stacks import padded
from skiplens.lenses.paths.expanders import Chunk, Gradient
from skiplens.residual import ResidualNetwork

Energies = dict[str, Tensor]


def weight_energies(
    chunks: list[Chunk], direction: Tensor | None, randomness: Randomness
) -> tuple[Energies, Energies, tuple[str, ...]]:
    """For each block the energy of its weights' gradient by the branches behind, and by those of the whole path.

    Beside them the parameters that whole paths leave out. The gradients of all samples add up before energies are
    taken, so the whole batch must fit in one piece.
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
    found: Energies = {}
    for one in pull_back(plan, PathOrders(), expander.cotangent):
        name = network.exported.parameters.get(one.name)
        if name is not None:
            found[name] = _energy(one.stack)
    whole = {one.name: _energy(one.stack) for one in weight_paths(network, wanted, expander.cotangent)}
    left_out = tuple(sorted(found.keys() - whole.keys()))
    return _by_block(network, found), _by_block(network, whole), left_out


def _energy(stack: Tensor) -> Tensor:
    return stack.double().flatten(1).square().sum(1).cpu()


def _by_block(network: ResidualNetwork, found: Energies) -> Energies:
    return {block.name: _sum(network, block.branch.parameters, found) for block in network.blocks}


def _sum(network: ResidualNetwork, names: tuple[str, ...], found: Energies) -> Tensor:
    energies = [found[name] for name in names if name in found]
    length = 1 + len(network.blocks)
    return sum((padded(energy, length) for energy in energies), torch.zeros(length, dtype=torch.float64))
