"""Tangent kernels of random Gaussian networks of finite width, drawn without their weight matrices.

The law is exactly that of networks with explicit weights (see `simulation`), the cost O(n·p²) per layer for n units and
p inputs instead of O(n²·p).

The vectors y¹, …, y^L of a ResNet's skip path turn with any rotation of their space, so only their coordinates matter:
each y is Q·R with an orthonormal frame Q that is never formed. A block adds a Gaussian vector: its part along Q, and
the norm of the rest. On the way back, what is known of the gradients b is their part along Q and the Gram matrix of the
rest; the frame one block below is a uniformly random continuation of Q, so its inner products with b are drawn when
needed.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, budget_bytes, require_fits
from skiplens.kernels.finite_width import gated_layer
from skiplens.kernels.finite_width.gated_layer import Draws, GatedLayer, Pulled, SlackFactor, draw_layer, factor, square
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla, require_layer, trained_layers
from skiplens.kernels.finite_width.simulation import KernelSamples, chunks, require_same_device, unit_inputs

_UNITS_AT_ONCE = 2**20  # units times inputs of a chunk's layer: enough to hide the calls, few enough for the caches


class Contribution(NamedTuple):
    """The part of the tangent kernel that belongs to one matrix."""

    layer: int
    matrix: int
    kernel: Float[Tensor, "networks inputs inputs"]


class Block(NamedTuple):
    """What the backward pass needs of a block."""

    coordinates: Tensor  # of the block's input y in its frame Q
    hidden: list[GatedLayer]
    increment: Tensor  # of the last matrix's Gaussian directions: coordinates along Q, then along the frame's new part
    turn: Tensor  # orthonormal coordinates of the next frame in Q and the new part


class Gradients(NamedTuple):
    """Gradients b with respect to a vector of the skip path."""

    along: Float[Tensor, "networks inputs inputs"]  # Qᵀb
    across: Float[Tensor, "networks inputs inputs"]  # a factor of the Gram matrix of what is orthogonal to Q

    def gram(self) -> Tensor:
        """Inner products bᵀb."""
        return square(self.along) + square(self.across)


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
    # R with RᵀR the inner products of the inputs; rows of zeros where there are fewer features than inputs
    start = torch.linalg.qr(unit.mT, mode="r").R
    start = torch.nn.functional.pad(start, (0, 0, 0, len(unit) - len(start)))
    wanted, kernels = trained_layers(network, trained), []
    for draws in _all_draws(network, inputs, networks, generator, memory):
        total = sum(part.kernel for part in _contributions(network, start, draws) if part.layer in wanted)
        kernels.append((total * scale).to(inputs.dtype))
    return KernelSamples(torch.cat(kernels))


def sample_jacobian_norms(
    network: Network, networks: int, generator: torch.Generator, memory: int | None = None
) -> Float[Tensor, "networks matrices"]:
    """‖∂f/∂W^k‖² for one input of norm² d and every trained matrix k, block by block.

    Of a DenseNet k is a whole layer. The sum over k is the kernel's diagonal with first and last layer frozen.
    """
    one = torch.ones(1, 1, dtype=torch.float64, device=generator.device)
    found = []
    for draws in _all_draws(network, one, networks, generator, memory):
        parts = [part for part in _contributions(network, one, draws) if 1 <= part.layer <= network.depth]
        parts.sort(key=lambda part: (part.layer, part.matrix))
        found.append(torch.stack([part.kernel[:, 0, 0] for part in parts], dim=1))
    return torch.cat(found)


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
    for draws in _all_draws(network, one, networks, generator, memory):
        match network:
            case ResNet():
                norm = _forward(network, one, draws, cut=layer)[1][:, 0, 0]
            case DenseNet():
                norm = _reduced_dense_norm(network, one, draws, layer, source)
            case Vanilla():
                start = draws.wishart_factor(network.width) @ one
                norm = _vanilla_layers(network, start, draws)[-1].gram[:, 0, 0].sqrt()
        found.append(norm / network.width**0.5 * draws.normal(1)[:, 0, 0])
    return torch.cat(found)


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


def _contributions(network: Network, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    match network:
        case ResNet():
            return _resnet_kernel(network, inputs, draws)
        case DenseNet():
            return _dense_kernel(network, inputs, draws)
        case Vanilla():
            return _vanilla_kernel(network, inputs, draws)


def _all_draws(
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
    # directions and outputs of all layers, the working copies of one layer, and about ten small matrices a layer
    hidden = network.depth * (network.branch_depth - 1 if isinstance(network, ResNet) else 1)
    per_network = (2 * hidden + 4) * n * p * inputs.element_size() + 80 * (network.depth + hidden + 4) * p**2
    budget = budget_bytes(inputs.device, memory)
    require_fits(per_network, "One network of this sample", "Use fewer inputs or float32.", budget)
    for size in chunks(networks, max(1, min(budget // per_network, _UNITS_AT_ONCE // (n * p)))):
        yield Draws(generator, size, p, inputs.dtype)


def _resnet_kernel(network: ResNet, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the matrices of a ResNet; 0 and depth + 1 are those of the first and last layer."""
    blocks, top = _forward(network, inputs, draws)
    yield Contribution(network.depth + 1, 1, square(top) / network.width)
    gradients = _last_layer(network, draws)
    for number in range(network.depth, 0, -1):
        gradients = yield from _backward_block(network, number, blocks.pop(), gradients, draws)
    yield Contribution(0, 1, square(inputs) * gradients.gram())


def _forward(network: ResNet, inputs: Tensor, draws: Draws, cut: int | None = None) -> tuple[list[Block], Tensor]:
    """The blocks and the coordinates of y^L; block `cut` has no skip (the reduced network)."""
    blocks, coordinates = list[Block](), draws.wishart_factor(network.width) @ inputs
    for number in range(1, network.depth + 1):
        block, coordinates = _draw_block(network, coordinates, draws, skip=number != cut)
        blocks.append(block)
    return blocks, coordinates


def _draw_block(network: ResNet, coordinates: Tensor, draws: Draws, skip: bool) -> tuple[Block, Tensor]:
    step = (float(network.branch_scale) / network.width) ** 0.5
    hidden: list[GatedLayer] = []
    incoming = coordinates
    for _ in range(network.branch_depth - 1):
        hidden.append(draw_layer(step * incoming, network.width, draws))
        incoming = hidden[-1].factor.forward()
    along, across = draws.normal(draws.inputs), draws.wishart_factor(network.width - draws.inputs)
    increment = torch.cat([along, across], dim=1)
    stacked = increment @ (step * incoming)
    if skip:
        stacked[:, : draws.inputs] += coordinates
    turn, after = torch.linalg.qr(stacked)
    return Block(coordinates, hidden, increment, turn), after


def _last_layer(network: ResNet, draws: Draws) -> Gradients:
    """Wᶠ/√n, the same gradient for every input."""
    p, n = draws.inputs, network.width
    along = draws.normal(p, 1).expand(-1, -1, p)
    across = torch.zeros_like(along).contiguous()
    across[:, 0] = draws.chi(torch.tensor([n - p]))
    return Gradients(along / n**0.5, across / n**0.5)


def _backward_block(
    network: ResNet, number: int, block: Block, gradients: Gradients, draws: Draws
) -> Generator[Contribution, None, Gradients]:
    """Yield the block's contributions and return the gradients with respect to its input."""
    step_squared = float(network.branch_scale) / network.width
    step = step_squared**0.5
    below, along = _in_frame_below(block, gradients, network.width, draws)
    inner = gradients.gram()
    incoming = [square(block.coordinates), *(layer.gram for layer in block.hidden)]
    for matrix in range(network.branch_depth, 1, -1):
        yield Contribution(number, matrix, step_squared * incoming[matrix - 1] * inner)
        noise_factor = step * factor(inner, draws.dtype)
        inner, along = gated_layer.pull_back(block.hidden[matrix - 2], step * along, noise_factor, draws)
    yield Contribution(number, 1, step_squared * incoming[0] * inner)
    # skip plus branch: the branch's gradients are known along the frame and fresh noise across it
    noise_factor = step * factor(inner, draws.dtype)
    shared = below.across + draws.normal(draws.inputs) @ noise_factor
    fresh = draws.wishart_factor(network.width - 2 * draws.inputs) @ noise_factor
    return Gradients(below.along + step * along, torch.linalg.qr(torch.cat([shared, fresh], dim=1), mode="r").R)


def _in_frame_below(block: Block, gradients: Gradients, width: int, draws: Draws) -> tuple[Gradients, Tensor]:
    """The gradients in the frame of the block's input, and along the block's last Gaussian directions.

    The part across the upper frame meets the lower one in a uniformly random way: a corner of a random rotation,
    drawn as Gaussian rows over the factor of all of them.
    """
    p = draws.inputs
    inside = draws.normal(2 * p)
    inside = inside - block.turn @ (block.turn.mT @ inside)
    outside = draws.wishart_factor(width - 2 * p)
    whole = factor(square(inside) + square(outside), torch.float64)
    rotated = torch.linalg.solve_triangular(whole, gradients.across, upper=True)
    coordinates = block.turn @ gradients.along + inside @ rotated
    across = torch.cat([coordinates[:, p:], outside @ rotated], dim=1)
    below = Gradients(coordinates[:, :p], torch.linalg.qr(across, mode="r").R)
    return below, block.increment.mT @ coordinates


def _dense_kernel(network: DenseNet, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a DenseNet; 0 and depth + 1 are those of the first and last layer."""
    layers, readers = _dense_layers(network, inputs, draws)
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
        pulled, met = gated_layer.pull_back_shared(layers.pop(), wanted - others, noise_factor, reader.upper, draws)
        wanted = wanted - met
    yield Contribution(0, 1, square(inputs) * pulled.gram)


def _dense_layers(network: DenseNet, inputs: Tensor, draws: Draws) -> tuple[list[GatedLayer], list[SlackFactor]]:
    """The layers q⁰ … q^{L-1}, and for l = 0 … L the factor of the summed Gram matrices of what layer l reads.

    All share one slack, so that the gradients of all layers above can be drawn as those of one.
    """
    layers = [draw_layer(inputs, network.width, draws)]
    total = layers[0].gram
    slack = torch.full_like(total[:, 0], gated_layer.slack_share(draws.dtype) * network.width)
    readers = [gated_layer.slack_factor(torch.zeros_like(total), slack), gated_layer.slack_factor(total, slack)]
    for number in range(1, network.depth):
        layers.append(draw_layer(readers[-1].forward() / (network.width * number) ** 0.5, network.width, draws))
        total = total + layers[-1].gram
        readers.append(gated_layer.slack_factor(total, slack))
    return layers, readers


def _vanilla_kernel(network: Vanilla, inputs: Tensor, draws: Draws) -> Iterator[Contribution]:
    """The contributions of the layers of a vanilla network; 0 and depth + 1 are those of the first and last layer."""
    step_squared = 1 / network.width
    step = step_squared**0.5
    start = draws.wishart_factor(network.width) @ inputs
    layers = _vanilla_layers(network, start, draws)
    yield Contribution(network.depth + 1, 1, layers[-1].gram / network.width)
    last = step * draws.normal(network.width, 1).mT.to(draws.dtype)
    pulled = gated_layer.through_gates(layers[-1], last.expand(-1, draws.inputs, -1).clone())
    for number in range(network.depth, 1, -1):
        below = layers[number - 2]
        yield Contribution(number, 1, step_squared * below.gram * pulled.gram)
        pulled = gated_layer.pull_back(below, step * pulled.along, step * factor(pulled.gram, draws.dtype), draws)
        layers.pop()
    yield Contribution(1, 1, step_squared * square(start) * pulled.gram)
    fresh = draws.wishart_factor(network.width - draws.inputs) @ (step * factor(pulled.gram, draws.dtype))
    yield Contribution(0, 1, square(inputs) * (square(step * pulled.along) + square(fresh)))


def _vanilla_layers(network: Vanilla, start: Tensor, draws: Draws) -> list[GatedLayer]:
    """The layers y¹ … y^L from the coordinates of y⁰."""
    layers = [draw_layer(start / network.width**0.5, network.width, draws)]
    for _ in range(network.depth - 1):
        layers.append(draw_layer(layers[-1].factor.forward() / network.width**0.5, network.width, draws))
    return layers


def _linear_top(network: DenseNet, reader: SlackFactor, draws: Draws) -> tuple[Pulled, Tensor]:
    """Gradients Wᶠ/√n at the linear top layer y^L, and the inner products of y^L."""
    n, p = network.width, draws.inputs
    norm = draws.chi(torch.tensor([n]))[..., None] / n**0.5
    along_last = draws.normal(p, 1)
    directions_gram = along_last @ along_last.mT + square(draws.wishart_factor(n - 1))
    values = reader.forward().mT @ directions_gram @ reader.forward() / (n * network.depth)
    return Pulled(norm.square().expand(-1, p, p), (along_last * norm).expand(-1, -1, p)), values
