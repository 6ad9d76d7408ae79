"""Tangent kernels of random Gaussian networks of finite width, drawn without their weight matrices.

The law is exactly that of networks with explicit weights (see `simulation`), the cost O(n·p²) per layer for n units and
p inputs instead of O(n²·p).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import budget_bytes, require_fits
from skiplens.kernels.finite_width.gated_layer import Draws, draw_layer
from skiplens.kernels.finite_width.networks import (
    DenseNet,
    Network,
    ResNet,
    Vanilla,
    require_layer,
    trains_first,
    trains_last,
)
from skiplens.kernels.finite_width.simulation import KernelSamples, chunks, require_same_device, unit_inputs
from skiplens.kernels.finite_width.streams import (
    Contribution,
    dense_kernel,
    forward,
    resnet_kernel,
    vanilla_kernel,
    vanilla_layers,
)

_UNITS_AT_ONCE = 2**20  # units times inputs of a chunk's layer: enough to hide the calls, few enough for the caches


def sample_kernels(
    network: Network,
    inputs: Tensor,
    networks: int,
    generator: torch.Generator,
    trained: str = "branches",
    memory: int | None = None,
) -> KernelSamples:
    """Tangent kernels of `networks` independent networks with Gaussian weights, on the same inputs.

    Args:
        network: Architecture, depth and width; the width must be at least twice the number of inputs.
        inputs: (samples, features); their dtype and device are those of the computation.
        networks: How many to draw.
        generator: On the device of `inputs`.
        trained: Which layers count, as in `kernel_moments`.
        memory: Bytes that may be used; half of what is free if not given.

    Examples:
        >>> from skiplens.kernels.finite_width import ResNet, kernel_moments
        >>> network = ResNet(depth=5, width=50)
        >>> drawn = sample_kernels(network, torch.ones(1, 4), 1000, torch.Generator().manual_seed(0))
        >>> bool(drawn.mean.deviation(kernel_moments(network).mean).abs() < 4)
        True
    """
    unit, scale = unit_inputs(inputs)
    start = _coordinates(unit)
    wanted = range(0 if trains_first(trained) else 1, network.depth + (2 if trains_last(trained) else 1))
    kernels = []
    for draws in all_draws(network, inputs, networks, generator, memory):
        total = sum(part.kernel for part in _contributions(network, start, draws) if part.layer in wanted)
        kernels.append((total * scale).to(inputs.dtype))
    return KernelSamples(torch.cat(kernels))


def sample_jacobian_norms(
    network: Network, networks: int, generator: torch.Generator, memory: int | None = None
) -> Float[Tensor, "networks matrices"]:
    """‖∂f/∂W^k‖² for one input of norm² d and every trained matrix k, in the order of `networks.matrices`.

    Of a DenseNet k is a whole layer. The sum over k is the kernel's diagonal with first and last layer frozen.
    """
    one = torch.ones(1, 1, dtype=torch.float64, device=generator.device)
    found = []
    for draws in all_draws(network, one, networks, generator, memory):
        parts = [part for part in _contributions(network, one, draws) if 1 <= part.layer <= network.depth]
        parts.sort(key=lambda part: (part.layer, part.matrix))
        found.append(torch.stack([part.kernel[:, 0, 0] for part in parts], dim=1))
    return torch.cat(found)


def _contributions(network: Network, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    match network:
        case ResNet():
            return resnet_kernel(network, inputs, draws)
        case DenseNet():
            return dense_kernel(network, inputs, draws)
        case Vanilla():
            return vanilla_kernel(network, inputs, draws)


def _coordinates(unit: Float[Tensor, "samples features"]) -> Float[Tensor, "samples samples"]:
    """R with RᵀR the inner products of the inputs; rows of zeros where there are fewer features than inputs."""
    coordinates = torch.linalg.qr(unit.mT, mode="r").R
    return torch.nn.functional.pad(coordinates, (0, 0, 0, len(unit) - len(coordinates)))


def all_draws(
    network: Network, inputs: Tensor, networks: int, generator: torch.Generator, memory: int | None = None
) -> Iterator[Draws]:
    """One source of draws for each chunk of networks that fits into the memory."""
    n, p = network.width, len(inputs)
    if n < 2 * p:
        raise InvalidInputError(
            f"A matrix-free sample needs a width of at least twice the number of inputs, got {n} units for {p} inputs. "
            "Use Simulation, which draws the weights: for narrow networks that is quick."
        )
    require_same_device(inputs, generator)
    per_network = _bytes_per_network(network, p, inputs.element_size())
    budget = budget_bytes(inputs.device, memory)
    require_fits(per_network, "One network of this sample", "Use fewer inputs or float32.", budget)
    for size in chunks(networks, max(1, min(budget // per_network, _UNITS_AT_ONCE // (n * p)))):
        yield Draws(generator, size, p, inputs.dtype)


def _bytes_per_network(network: Network, inputs: int, item_size: int) -> int:
    """Directions and outputs of all layers, the working copies of one layer, and about ten small matrices a layer."""
    hidden = network.depth * (network.branch_depth - 1 if isinstance(network, ResNet) else 1)
    return (2 * hidden + 4) * network.width * inputs * item_size + 80 * (network.depth + hidden + 4) * inputs**2


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
