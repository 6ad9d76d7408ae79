"""DenseNets and vanilla networks drawn without weights, one layer of units after the other.

In a DenseNet all layers above q^h read it, each through a matrix of its own. Their gradients at q^h need not be drawn
one by one: given the sum S over h′ ≤ h of the inner products of q^{h′} with its gradients, and the summed covariance of
the layers above, all of them together act as one Gaussian matrix. So a layer costs the same at every depth.
"""

from collections.abc import Iterator

import torch

from skiplens.core.axes import Tensor
from skiplens.theory.finite_width.gated_layer import (
    GatedLayer,
    Pulled,
    draw_layer,
    pull_back,
    pull_back_shared,
    through_gates,
)
from skiplens.theory.finite_width.networks import DenseNet, Vanilla
from skiplens.theory.finite_width.residual_stream import Contribution, square
from skiplens.theory.finite_width.small_matrices import Draws, SlackFactor, factor, slack_factor, slack_share


def dense_kernel(network: DenseNet, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a DenseNet; 0 and depth + 1 are those of the first and last layer."""
    layers, readers = dense_layers(network, inputs, draws)
    pulled, values = _linear_top(network, readers[-1], draws)
    yield Contribution(network.depth + 1, 1, values / network.width)
    wanted, covariance = torch.zeros_like(values), torch.zeros_like(values)
    for number in range(network.depth, 0, -1):
        step, reader = 1 / (network.width * number), readers[number]
        yield Contribution(number, 1, step * square(reader.upper) * pulled.gram)
        wanted = wanted + step**0.5 * reader.upper.mT @ pulled.along
        covariance = covariance + step * pulled.gram
        noise_factor = factor(covariance, draws.dtype)
        others = readers[number - 1].upper.mT @ draws.normal(draws.inputs) @ noise_factor
        pulled, met = pull_back_shared(layers.pop(), wanted - others, noise_factor, reader.upper, draws)
        wanted = wanted - met
    yield Contribution(0, 1, square(inputs) * pulled.gram)


def dense_layers(network: DenseNet, inputs: Tensor, draws: Draws) -> tuple[list[GatedLayer], list[SlackFactor]]:
    """The layers q⁰ … q^{L-1}, and for l = 0 … L the factor of the summed Gram matrices of what layer l reads.

    All share one slack, so that the gradients of all layers above can be drawn as those of one.
    """
    layers = [draw_layer(inputs, network.width, draws)]
    total = layers[0].gram
    slack = torch.full_like(total[:, 0], slack_share(draws.dtype) * network.width)
    readers = [slack_factor(torch.zeros_like(total), slack), slack_factor(total, slack)]
    for number in range(1, network.depth):
        layers.append(draw_layer(readers[-1].forward() / (network.width * number) ** 0.5, network.width, draws))
        total = total + layers[-1].gram
        readers.append(slack_factor(total, slack))
    return layers, readers


def vanilla_kernel(network: Vanilla, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a vanilla network; 0 and depth + 1 are those of the first and last layer."""
    step_squared = 1 / network.width
    step = step_squared**0.5
    start = draws.wishart_factor(network.width) @ inputs
    layers = vanilla_layers(network, start, draws)
    yield Contribution(network.depth + 1, 1, layers[-1].gram / network.width)
    last = step * draws.normal(network.width, 1).mT.to(draws.dtype)
    pulled = through_gates(layers[-1], last.expand(-1, draws.inputs, -1).clone())
    for number in range(network.depth, 1, -1):
        below = layers[number - 2]
        yield Contribution(number, 1, step_squared * below.gram * pulled.gram)
        pulled = pull_back(below, step * pulled.along, step * factor(pulled.gram, draws.dtype), draws)
        layers.pop()
    yield Contribution(1, 1, step_squared * square(start) * pulled.gram)
    fresh = draws.wishart_factor(network.width - draws.inputs) @ (step * factor(pulled.gram, draws.dtype))
    yield Contribution(0, 1, square(inputs) * (square(step * pulled.along) + square(fresh)))


def vanilla_layers(network: Vanilla, start: Tensor, draws: Draws) -> list[GatedLayer]:
    """The layers y¹ … y^L from the coordinates of y⁰."""
    layers, incoming = list[GatedLayer](), start
    for _ in range(network.depth):
        layers.append(draw_layer(incoming / network.width**0.5, network.width, draws))
        incoming = layers[-1].factor.forward()
    return layers


def _linear_top(network: DenseNet, reader: SlackFactor, draws: Draws) -> tuple[Pulled, Tensor]:
    """Gradients Wᶠ/√n at the linear top layer y^L, and the inner products of y^L."""
    n, p = network.width, draws.inputs
    norm = draws.chi(torch.tensor([n]))[..., None] / n**0.5
    along_last = draws.normal(p, 1)
    directions_gram = along_last @ along_last.mT + square(draws.wishart_factor(n - 1))
    values = reader.forward().mT @ directions_gram @ reader.forward() / (n * network.depth)
    return Pulled(norm.square().expand(-1, p, p), (along_last * norm).expand(-1, -1, p)), values
