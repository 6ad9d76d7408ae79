"""DenseNets and vanilla networks drawn without weights, one layer of units after the other.

In a DenseNet all layers above q^h read it, each through a matrix of its own. Their gradients at q^h need not be drawn
one by one: given the sum S over h′ ≤ h of the inner products of q^{h′} with its gradients, and the summed covariance of
the layers above, all of them together act as one Gaussian matrix. So a layer costs the same at every depth.
"""

from collections.abc import Iterator

import torch

from skiplens.core.axes import Tensor
from skiplens.theory.finite_width.gated_layer import GatedLayer, Pulled, draw_layer, pull_back, through_gates
from skiplens.theory.finite_width.networks import DenseNet, Vanilla
from skiplens.theory.finite_width.residual_stream import Contribution, square
from skiplens.theory.finite_width.small_matrices import Draws, factor


def dense_kernel(network: DenseNet, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a DenseNet; 0 and depth + 1 are those of the first and last layer."""
    layers, readers = dense_layers(network, inputs, draws)
    top = _linear_top(network, readers[-1], draws)
    step = 1 / (network.width * network.depth)
    yield Contribution(network.depth + 1, 1, top.met / network.width)
    yield Contribution(network.depth, 1, step * square(readers[-1]) * top.gram)
    wanted, covariance = step**0.5 * readers[-1].mT @ top.along, step * top.gram
    for number in range(network.depth - 1, -1, -1):
        noise_factor = factor(covariance, draws.dtype)
        below = readers[number - 1] if number else torch.zeros_like(wanted)
        others = below.mT @ draws.normal(draws.inputs) @ noise_factor
        pulled = pull_back(layers.pop(), wanted - others, noise_factor, draws, readers[number])
        if number == 0:
            yield Contribution(0, 1, square(inputs) * pulled.gram)
            return
        step = 1 / (network.width * number)
        yield Contribution(number, 1, step * square(below) * pulled.gram)
        wanted = wanted - pulled.met + step**0.5 * below.mT @ pulled.along
        covariance = covariance + step * pulled.gram


def dense_layers(network: DenseNet, inputs: Tensor, draws: Draws) -> tuple[list[GatedLayer], list[Tensor]]:
    """The layers q⁰ … q^{L-1}, and for each the factor of the summed Gram matrices that the layer above it reads."""
    layers = [draw_layer(inputs, network.width, draws)]
    total, readers = layers[0].gram, [layers[0].factor]
    for number in range(1, network.depth):
        layers.append(draw_layer(readers[-1] / (network.width * number) ** 0.5, network.width, draws))
        total = total + layers[-1].gram
        readers.append(factor(total, draws.dtype))
    return layers, readers


def vanilla_kernel(network: Vanilla, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a vanilla network; 0 and depth + 1 are those of the first and last layer."""
    step_squared = 1 / network.width
    step = step_squared**0.5
    start = draws.wishart_factor(network.width) @ inputs
    layers = vanilla_layers(network, start, draws)
    yield Contribution(network.depth + 1, 1, layers[-1].gram / network.width)
    at_top = step * draws.wide_normal(network.width, 1).expand(-1, -1, draws.inputs).contiguous()
    pulled = through_gates(layers[-1], at_top, at_top[:, :0])
    for number in range(network.depth, 1, -1):
        below = layers[number - 2]
        yield Contribution(number, 1, step_squared * below.gram * pulled.gram)
        noise_factor = step * factor(pulled.gram, draws.dtype)
        pulled = pull_back(below, step * below.factor.mT @ pulled.along, noise_factor, draws)
        layers.pop()
    yield Contribution(1, 1, step_squared * square(start) * pulled.gram)
    fresh = draws.wishart_factor(network.width - draws.inputs) @ (step * factor(pulled.gram, draws.dtype))
    yield Contribution(0, 1, square(inputs) * (square(step * pulled.along) + square(fresh)))


def vanilla_layers(network: Vanilla, start: Tensor, draws: Draws) -> list[GatedLayer]:
    """The layers y¹ … y^L from the coordinates of y⁰."""
    layers, incoming = list[GatedLayer](), start
    for _ in range(network.depth):
        layers.append(draw_layer(incoming / network.width**0.5, network.width, draws))
        incoming = layers[-1].factor
    return layers


def _linear_top(network: DenseNet, reader: Tensor, draws: Draws) -> Pulled:
    """Gradients Wᶠ/√n at the linear top layer y^L; `met` holds the inner products of y^L itself."""
    n, p = network.width, draws.inputs
    norm = draws.chi(torch.tensor([n]))[..., None] / n**0.5
    along_last = draws.normal(p, 1)
    rest = draws.wishart_factor(n - 1)
    outer = along_last @ along_last.mT + square(rest)
    values = reader.mT @ outer @ reader / (n * network.depth)
    return Pulled(norm.square().expand(-1, p, p), (along_last * norm).expand(-1, -1, p), values)
