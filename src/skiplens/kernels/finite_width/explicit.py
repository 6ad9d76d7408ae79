"""Random networks with their weights, many of them as one batch, and their matrices in use.

No Jacobian is formed: the gradient of a scalar output with respect to a matrix that maps u to s·Wu is the outer
product of the gradient b at its image and s·u, so its contribution to the tangent kernel is s²(u·u′)(b·b′).
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla, WeightLaw, require_layer


@dataclass(frozen=True)
class ExplicitNetworks:
    """The weights of a batch of networks, matrices acting from the left.

    Attributes:
        network: Architecture, depth and width of each.
        first: Wˢ.
        inner: The trained matrices, block by block; a DenseNet layer reads [q⁰, q¹, …].
        last: Wᶠ.
    """

    network: Network
    first: Float[Tensor, "networks width features"]
    inner: list[Tensor]
    last: Float[Tensor, "networks 1 width"]


@dataclass(frozen=True)
class Link:
    """One matrix in use: it maps `source` to `image` = √scale_squared·W·source and gets `gradients` back."""

    layer: int
    matrix: int
    scale_squared: float
    source: Float[Tensor, "networks fan_in samples"]
    image: Float[Tensor, "networks width samples"]
    gradients: Float[Tensor, "networks width samples"]

    def kernel(self) -> Float[Tensor, "networks samples samples"]:
        """The matrix's contribution to the tangent kernel."""
        return self.scale_squared * (self.source.mT @ self.source) * (self.gradients.mT @ self.gradients)

    def jacobian_squared(self) -> Float[Tensor, "networks samples"]:
        """‖J‖², J = ∂f/∂W."""
        return self.scale_squared * self.source.square().sum(1) * self.gradients.square().sum(1)

    def jacobian_fourth_powers(self) -> Float[Tensor, "networks samples"]:
        """Σ J_ij⁴."""
        return self.scale_squared**2 * self.source.pow(4).sum(1) * self.gradients.pow(4).sum(1)

    def path_part(self) -> Float[Tensor, "networks samples"]:
        """The sum over all paths through this matrix, ⟨∂f/∂W, W⟩."""
        return (self.image * self.gradients).sum(1)


def draw_networks(
    network: Network, features: int, networks: int, law: WeightLaw, dtype: torch.dtype, generator: torch.Generator
) -> ExplicitNetworks:
    """`networks` independent networks for inputs of `features` numbers, on the generator's device."""

    def draw(rows: int, columns: int) -> Tensor:
        return law.draw((networks, rows, columns), dtype, generator)

    n = network.width
    first = draw(n, features)
    return ExplicitNetworks(network, first, [draw(n, fan_in) for fan_in in fan_ins(network)], draw(1, n))


def fan_ins(network: Network) -> list[int]:
    """The number of units that each trained matrix reads."""
    if isinstance(network, DenseNet):
        return [network.width * layer for layer in range(1, network.depth + 1)]
    return [network.width] * (network.depth * (network.branch_depth if isinstance(network, ResNet) else 1))


_GAIN = 2**0.5  # of the ReLU, so that it keeps the mean squared norm

Backward = Generator[Link, None, Tensor]
"""Yields the links of all matrices, the last one first, and returns the gradients with respect to y⁰."""


@dataclass
class _Run:
    """What a forward pass leaves for the backward pass."""

    bottom: Tensor
    top: Tensor
    sources: list[Tensor] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def apply(self, matrix: Tensor, source: Tensor, scale_squared: float) -> Tensor:
        """√scale_squared·matrix·source, remembered."""
        image = (matrix @ source).mul_(scale_squared**0.5)
        self.sources.append(source)
        self.images.append(image)
        self.steps.append(scale_squared)
        return image


def reduced_outputs(
    drawn: ExplicitNetworks, inputs: Float[Tensor, "samples features"], layer: int, source: int | None = None
) -> Float[Tensor, "networks samples"]:
    """f_(k)(x): the network without all connections that bypass `layer`.

    In a ResNet block `layer` loses its skip. In a DenseNet the layers above read only what comes from `layer` on, and
    with `source` given `layer` itself reads only q^source. A vanilla network has nothing to lose.
    """
    require_layer(drawn.network, layer, source)
    return _readout(drawn, _forward(drawn, inputs, layer, source))


def links(drawn: ExplicitNetworks, inputs: Float[Tensor, "samples features"]) -> Iterator[Link]:
    """Every matrix in use, the last one first; layers 0 and depth + 1 are the first and last layer."""
    run = _forward(drawn, inputs)
    n, L = drawn.network.width, drawn.network.depth
    yield Link(L + 1, 1, 1 / n, run.top, _readout(drawn, run)[:, None], torch.ones_like(run.top[:, :1]))
    top_gradients = (drawn.last.mT / n**0.5).expand(-1, -1, len(inputs))
    match drawn.network:
        case ResNet():
            gradients = yield from _resnet_backward(drawn, run, top_gradients)
        case DenseNet():
            gradients = yield from _densenet_backward(drawn, run, top_gradients)
        case Vanilla():
            gradients = yield from _vanilla_backward(drawn, run, top_gradients)
    yield Link(0, 1, 1 / inputs.shape[1], inputs.mT.expand(len(run.top), -1, -1), run.bottom, gradients)


def split_by_source(drawn: ExplicitNetworks, link: Link) -> Iterator[Link]:
    """The links of the single matrices W^{l,h} of a DenseNet layer; `matrix` is h + 1."""
    n = drawn.network.width
    for h in range(link.layer):
        units = slice(h * n, (h + 1) * n)
        source = link.source[:, units]
        image = link.scale_squared**0.5 * drawn.inner[link.layer - 1][:, :, units] @ source
        yield Link(link.layer, h + 1, link.scale_squared, source, image, link.gradients)


def _forward(drawn: ExplicitNetworks, inputs: Tensor, cut: int | None = None, cut_source: int | None = None) -> _Run:
    network, n = drawn.network, drawn.network.width
    bottom = drawn.first @ inputs.mT / inputs.shape[1] ** 0.5
    run = _Run(bottom, bottom)
    match network:
        case ResNet(branch_depth=m):
            for block in range(network.depth):
                branch = shortcut = run.top
                for h, matrix in enumerate(drawn.inner[m * block : m * (block + 1)]):
                    source = _relu(branch) if h else shortcut
                    branch = run.apply(matrix, source, float(network.branch_scale) / n)
                run.top = branch if block + 1 == cut else shortcut + branch
        case DenseNet():
            read = _relu(bottom)
            for layer, matrix in enumerate(drawn.inner, start=1):
                if cut is not None and cut < layer:
                    read = _only(read, range(cut * n, layer * n))
                if cut == layer and cut_source is not None:
                    read = _only(read, range(cut_source * n, (cut_source + 1) * n))
                run.top = run.apply(matrix, read, 1 / (n * layer))
                read = torch.cat([read, _relu(run.top)], dim=1)
        case Vanilla():
            for matrix in drawn.inner:
                run.top = _relu(run.apply(matrix, run.top, 1 / n))
    return run


def _only(units: Tensor, kept: range) -> Tensor:
    """The same units with all but `kept` set to zero."""
    alone = torch.zeros_like(units)
    alone[:, kept.start : kept.stop] = units[:, kept.start : kept.stop]
    return alone


def _resnet_backward(drawn: ExplicitNetworks, run: _Run, gradients: Tensor) -> Backward:
    m = len(drawn.inner) // drawn.network.depth
    for block in range(drawn.network.depth, 0, -1):
        branch = gradients
        for matrix in range(m, 0, -1):
            index = (block - 1) * m + matrix - 1
            yield _link(run, index, block, matrix, branch)
            branch = _through(drawn, run, index, branch)
            if matrix > 1:
                branch = _gate(branch, run.images[index - 1])
        gradients = gradients + branch
    return gradients


def _vanilla_backward(drawn: ExplicitNetworks, run: _Run, gradients: Tensor) -> Backward:
    for layer in range(drawn.network.depth, 0, -1):
        gradients = _gate(gradients, run.images[layer - 1])
        yield _link(run, layer - 1, layer, 1, gradients)
        gradients = _through(drawn, run, layer - 1, gradients)
    return gradients


def _densenet_backward(drawn: ExplicitNetworks, run: _Run, gradients: Tensor) -> Backward:
    n = drawn.network.width
    at_read = torch.zeros_like(run.sources[-1])
    for layer in range(drawn.network.depth, 0, -1):
        yield _link(run, layer - 1, layer, 1, gradients)
        at_read[:, : layer * n] += _through(drawn, run, layer - 1, gradients)
        below = run.images[layer - 2] if layer > 1 else run.bottom
        gradients = _gate(at_read[:, (layer - 1) * n : layer * n], below)
    return gradients


def _link(run: _Run, index: int, layer: int, matrix: int, gradients: Tensor) -> Link:
    return Link(layer, matrix, run.steps[index], run.sources[index], run.images[index], gradients)


def _through(drawn: ExplicitNetworks, run: _Run, index: int, gradients: Tensor) -> Tensor:
    """Gradients at a matrix's source from those at its image."""
    return (drawn.inner[index].mT @ gradients).mul_(run.steps[index] ** 0.5)


def _gate(gradients: Tensor, preactivations: Tensor) -> Tensor:
    return gradients * (preactivations > 0) * _GAIN


def _relu(preactivations: Tensor) -> Tensor:
    return preactivations.relu().mul_(_GAIN)


def _readout(drawn: ExplicitNetworks, run: _Run) -> Tensor:
    return (drawn.last @ run.top / drawn.network.width**0.5)[:, 0]
