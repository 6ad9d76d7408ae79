"""The reduced networks f_(k) of 'Residual Tangent Kernels', definition 1: what bypasses the weights W^k is removed.

Each is a new network that shares its weights with the given one; layers are counted from 1 to L as in the paper.
"""

from collections import OrderedDict

from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.residual.zoo.blocks import Plain, Residual
from skiplens.residual.zoo.littwin2020 import DenseLayers


def reduced_network(network: nn.Sequential, layer: int, matrix: int | None = None) -> nn.Sequential:
    """The reduced network f_(k) of a tangent ResNet, DenseNet or vanilla network, with shared weights.

    Args:
        network: What `tangent_resnet`, `tangent_densenet` or `tangent_vanilla` returned.
        layer: l of k = (l, h) or k = l, from 1 to the depth.
        matrix: Only for a DenseNet: h of the block W^{l,h}, from 0 to l - 1, for the matrix reading; without it the
            layer reading (all of W^l) is meant. (For a ResNet f_(k) is the same for all matrices of a branch.)
    """
    parts = dict(network.named_children())
    _require(
        list(parts) == ["first", "blocks", "last"],
        f"Only tangent_resnet, tangent_densenet and tangent_vanilla have reduced networks; got one of {list(parts)}.",
    )
    blocks = parts["blocks"]
    if isinstance(blocks, DenseLayers):
        reduced: nn.Module = _reduced_densenet(blocks, layer, matrix)
    else:
        reduced = _reduced_chain(list(blocks.children()), layer, matrix)
    return nn.Sequential(OrderedDict(parts, blocks=reduced))


def _reduced_densenet(dense: DenseLayers, layer: int, matrix: int | None) -> DenseLayers:
    layers = dense.scaled_layers()
    _require_layer(layer, len(layers))
    _require(
        matrix is None or 0 <= matrix < layer,
        f"matrix must be from 0 to {layer - 1} for layer {layer}; got {matrix}.",
    )
    reads = [range(j) if j <= layer else range(layer, j) for j in range(1, len(layers) + 1)]
    if matrix is not None:
        reads[layer - 1] = range(matrix, matrix + 1)
    return DenseLayers(layers, reads)


def _reduced_chain(blocks: list[nn.Module], layer: int, matrix: int | None) -> nn.Sequential:
    _require_layer(layer, len(blocks))
    _require(matrix is None, f"Only a DenseNet has blocks W^(l,h) to choose from; leave out matrix={matrix}.")
    blocks[layer - 1] = _without_shortcut(blocks[layer - 1])
    return nn.Sequential(*blocks)


def _without_shortcut(block: nn.Module) -> nn.Module:
    return Plain(block.branch) if isinstance(block, Residual) else block


def _require_layer(layer: int, depth: int) -> None:
    _require(1 <= layer <= depth, f"layer must be from 1 to {depth}; got {layer}.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidInputError(message)
