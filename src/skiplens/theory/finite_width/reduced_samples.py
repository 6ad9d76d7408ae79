"""Outputs of reduced Gaussian networks for one input, drawn without weight matrices."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.finite_width.dense_stack import vanilla_layers
from skiplens.theory.finite_width.gated_layer import draw_layer
from skiplens.theory.finite_width.matrix_free import all_draws
from skiplens.theory.finite_width.networks import DenseNet, Network, ResNet, Vanilla, require_layer
from skiplens.theory.finite_width.residual_stream import forward
from skiplens.theory.finite_width.small_matrices import Draws


def sample_reduced_outputs(
    network: Network,
    networks: int,
    generator: torch.Generator,
    layer: int = 1,
    source: int | None = None,
    memory: int | None = None,
) -> Float[Tensor, " networks"]:
    """f_(k) of `networks` independent Gaussian networks at one input of norm² d; `layer` and `source` say which k.

    They have the same meaning as in `reduced_moments`, which gives the exact second and fourth moment; `memory` is the
    number of bytes that may be used, half of what is free if not given.
    """
    require_layer(network, layer, source)
    one = torch.ones(1, 1, dtype=torch.float64, device=generator.device)
    found = []
    for draws in all_draws(network, one, networks, generator, memory):
        norm = _top_norm(network, one, draws, (layer, source))
        found.append(norm / network.width**0.5 * draws.normal(1)[:, 0, 0])
    return torch.cat(found)


def _top_norm(network: Network, one: Tensor, draws: Draws, cut: tuple[int, int | None]) -> Float[Tensor, " networks"]:
    match network:
        case ResNet():
            return forward(network, one, draws, cut[0])[1][:, 0, 0]
        case DenseNet():
            return _reduced_dense_norm(network, one, draws, *cut)
        case Vanilla():
            return vanilla_layers(network, draws.wishart_factor(network.width) @ one, draws)[-1].gram[:, 0, 0].sqrt()


def _reduced_dense_norm(network: DenseNet, one: Tensor, draws: Draws, layer: int, source: int | None) -> Tensor:
    """‖y^L‖ where `layer` reads all below or `source` alone, and the layers above read only from `layer` on."""
    grams = [draw_layer(one, network.width, draws).gram]
    for number in range(1, network.depth + 1):
        read = grams[layer:] if number > layer else grams
        if number == layer and source is not None:
            read = grams[source : source + 1]
        step = (sum(read[1:], start=read[0]) / (network.width * number)).sqrt()
        if number < network.depth:
            grams.append(draw_layer(step, network.width, draws).gram)
    return (draws.wishart_factor(network.width) @ step)[:, 0, 0]
