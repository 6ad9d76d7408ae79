"""Simulated networks with explicit weights of any law: tangent kernels, Jacobians, path parts, reduced networks.

Many networks are one batch, and no Jacobian is formed: the gradient of a scalar output with respect to a matrix that
maps u to s·Wu is the outer product of the gradient b at its image and s·u, so its contribution to the tangent kernel is
s²(u·u′)(b·b′). All b come from one backward pass: an output depends on the images of its own network and input only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, budget_bytes, refuse_if, require_fits
from skiplens.kernels.finite_width.networks import (
    DenseNet,
    Network,
    ResNet,
    Vanilla,
    WeightLaw,
    require_layer,
    trained_layers,
    weight_law,
)

_WEIGHTS_AT_ONCE = 2**23  # numbers of a chunk's largest matrix: enough to hide the calls, few enough for the caches
_GAIN = 2**0.5  # of the ReLU, so that it keeps the mean squared norm


@dataclass(frozen=True)
class ExplicitNetworks:
    """The weights of a batch of networks, matrices acting from the left."""

    network: Network
    first: Float[Tensor, "networks width features"]  # Wˢ
    inner: list[Tensor]  # the trained matrices, block by block; a DenseNet layer reads [q⁰, q¹, …]
    last: Float[Tensor, "networks 1 width"]  # Wᶠ


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


@dataclass(frozen=True)
class MatrixSamples:
    """What random networks show of single trained matrices k, for one input."""

    matrices: list[tuple[int, int]]  # (layer, matrix) of every column; (layer, source + 1) of single sources
    reduced: Float[Tensor, "networks matrices"]  # output f_(k) of the reduced network
    path_part: Float[Tensor, "networks matrices"]  # sum f^k over the paths through k
    jacobian_squared: Float[Tensor, "networks matrices"]  # ‖J^k‖²
    jacobian_fourth_powers: Float[Tensor, "networks matrices"]  # Σ (J^k_ij)⁴


@dataclass(frozen=True)
class Estimate:
    """A Monte-Carlo mean with its standard error, entry by entry."""

    value: Tensor
    standard_error: Tensor

    def deviation(self, expected: Tensor | float) -> Tensor:
        """How many standard errors the estimate lies above `expected`."""
        return (self.value - expected) / self.standard_error


@dataclass(frozen=True)
class KernelSamples:
    """The tangent kernels of independent random networks on the same inputs."""

    samples: Float[Tensor, "networks samples samples"]

    @property
    def mean(self) -> Estimate:
        """Mean kernel over the networks."""
        return estimate(self.samples)

    @property
    def second_moment(self) -> Estimate:
        """Mean of the squared entries."""
        return estimate(self.samples.double().square())

    @property
    def variance(self) -> Estimate:
        """Variance over the networks; its standard error is that of the mean of squared deviations."""
        squares = (self.samples.double() - self.samples.double().mean(0)).square()
        found, count = estimate(squares), len(squares)
        return Estimate(found.value * count / (count - 1), found.standard_error * count / (count - 1))


@dataclass(frozen=True)
class Simulation:
    """Random networks with explicit weights, drawn and evaluated hundreds at a time.

    Attributes:
        network: Architecture, depth and width.
        law: Of the weights: ``"gaussian"``, ``"uniform"``, ``"rademacher"`` or ``"laplace"``.
        trained: Which layers the kernel counts, as in `kernel_moments`.
        memory: Bytes that may be used; half of what is free if not given.
    """

    network: Network
    law: str = "gaussian"
    trained: str = "branches"
    memory: int | None = None

    def kernels(self, inputs: Tensor, networks: int, generator: torch.Generator) -> KernelSamples:
        """Tangent kernels of `networks` independent networks on the same inputs (samples, features).

        The inputs' dtype and device are those of the computation.
        """
        unit_inputs(inputs)
        wanted, kernels = trained_layers(self.network, self.trained), []
        for drawn in self._draw(inputs, networks, generator):
            total = torch.zeros((), dtype=inputs.dtype, device=inputs.device)
            for link in links(drawn, inputs):
                total = total + link.kernel() if link.layer in wanted else total
            kernels.append(total)
        return KernelSamples(torch.cat(kernels))

    def matrices(
        self, inputs: Tensor, networks: int, generator: torch.Generator, single_sources: bool = False
    ) -> MatrixSamples:
        """Reduced networks, path parts and Jacobians of every trained matrix, in the same networks.

        Args:
            inputs: One input, (1, features).
            networks: How many to draw.
            generator: On the device of `inputs`.
            single_sources: Of a DenseNet: take every matrix W^{l,h} for itself instead of whole layers W^l.
        """
        unit_inputs(inputs)
        refuse_if(len(inputs) != 1, f"Single matrices are looked at for one input at a time, got {len(inputs)} inputs.")
        if single_sources and not isinstance(self.network, DenseNet):
            raise InvalidInputError("Only a DenseNet has one matrix per source; leave single_sources out.")
        parts = [_matrix_samples(drawn, inputs, single_sources) for drawn in self._draw(inputs, networks, generator)]
        names = ("reduced", "path_part", "jacobian_squared", "jacobian_fourth_powers")
        columns = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        return MatrixSamples(parts[0].matrices, *columns)

    def _draw(self, inputs: Tensor, networks: int, generator: torch.Generator) -> Iterator[ExplicitNetworks]:
        """The networks in chunks that fit into the memory."""
        law = weight_law(self.law)
        require_same_device(inputs, generator)
        n, sizes, (p, d) = self.network.width, fan_ins(self.network), inputs.shape
        # all weights, and four vectors per input for each matrix: source, image, gradients and a working copy
        numbers = n * (sum(sizes) + d + 1) + 4 * p * (sum(sizes) + len(sizes) * (n + p) + d)
        per_network = numbers * inputs.element_size()
        budget = budget_bytes(inputs.device, self.memory)
        instead = "Take a narrower network, float32, or (Gaussian weights) sample_kernels, which draws no weights."
        require_fits(per_network, "One network with explicit weights", instead, budget)
        for size in chunks(networks, max(1, min(budget // per_network, _WEIGHTS_AT_ONCE // (n * max(sizes))))):
            yield draw_networks(self.network, d, size, law, inputs.dtype, generator)


def _matrix_samples(drawn: ExplicitNetworks, inputs: Tensor, single_sources: bool) -> MatrixSamples:
    inner = [link for link in links(drawn, inputs) if 1 <= link.layer <= drawn.network.depth]
    if single_sources:
        inner = [part for link in inner for part in split_by_source(drawn, link)]
    inner.sort(key=lambda link: (link.layer, link.matrix))
    matrices = [(link.layer, link.matrix) for link in inner]
    columns = (
        [reduced_outputs(drawn, inputs, layer, matrix - 1 if single_sources else None) for layer, matrix in matrices],
        [link.path_part() for link in inner],
        [link.jacobian_squared() for link in inner],
        [link.jacobian_fourth_powers() for link in inner],
    )
    return MatrixSamples(matrices, *(torch.cat(column, dim=1) for column in columns))


def draw_networks(
    network: Network, features: int, networks: int, law: WeightLaw, dtype: torch.dtype, generator: torch.Generator
) -> ExplicitNetworks:
    """`networks` independent networks for inputs of `features` numbers, on the generator's device."""

    def draw(rows: int, columns: int) -> Tensor:
        return law.draw((networks, rows, columns), dtype, generator)

    first, n = draw(network.width, features), network.width
    return ExplicitNetworks(network, first, [draw(n, fan_in) for fan_in in fan_ins(network)], draw(1, n))


def fan_ins(network: Network) -> list[int]:
    """The number of units that each trained matrix reads."""
    if isinstance(network, DenseNet):
        return [network.width * layer for layer in range(1, network.depth + 1)]
    return [network.width] * (network.depth * (network.branch_depth if isinstance(network, ResNet) else 1))


@dataclass
class _Run:
    """What a forward pass leaves for the backward pass."""

    bottom: Tensor
    top: Tensor
    products: list[tuple[float, Tensor, Tensor]] = field(default_factory=list)  # scale squared, source and image

    def apply(self, matrix: Tensor, source: Tensor, scale_squared: float) -> Tensor:
        """√scale_squared·matrix·source, remembered."""
        image = (matrix @ source).mul_(scale_squared**0.5)
        self.products.append((scale_squared, source, image))
        return image


def reduced_outputs(
    drawn: ExplicitNetworks, inputs: Float[Tensor, "samples features"], layer: int, source: int | None = None
) -> Float[Tensor, "networks samples"]:
    """f_(k)(x): the network without all connections that bypass `layer`.

    In a ResNet block `layer` loses its skip. In a DenseNet the layers above read only what comes from `layer` on, and
    with `source` given `layer` itself reads only q^source. A vanilla network has nothing to lose.
    """
    require_layer(drawn.network, layer, source)
    with torch.no_grad():
        return _readout(drawn, _forward(drawn, inputs, layer, source))


def links(drawn: ExplicitNetworks, inputs: Float[Tensor, "samples features"]) -> Iterator[Link]:
    """Every matrix in use, the last one first; layers 0 and depth + 1 are the first and last layer."""
    n, L = drawn.network.width, drawn.network.depth
    with torch.enable_grad():
        run = _forward(drawn, inputs)
        outputs = _readout(drawn, run)
        images = [image for _, _, image in run.products]
        at_bottom, *gradients = torch.autograd.grad(outputs.sum(), [run.bottom, *images])
    yield Link(L + 1, 1, 1 / n, run.top.detach(), outputs.detach()[:, None], torch.ones_like(outputs)[:, None])
    per_layer = len(drawn.inner) // L
    for index in range(len(drawn.inner) - 1, -1, -1):
        scale_squared, source, image = run.products[index]
        layer, matrix = index // per_layer + 1, index % per_layer + 1
        yield Link(layer, matrix, scale_squared, source.detach(), image.detach(), gradients[index])
    first = inputs.mT.expand(len(outputs), -1, -1)
    yield Link(0, 1, 1 / inputs.shape[1], first, run.bottom.detach(), at_bottom)


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
    bottom = (drawn.first @ inputs.mT / inputs.shape[1] ** 0.5).requires_grad_(torch.is_grad_enabled())
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


def _relu(preactivations: Tensor) -> Tensor:
    return _GAIN * preactivations.relu()


def _readout(drawn: ExplicitNetworks, run: _Run) -> Tensor:
    return (drawn.last @ run.top / drawn.network.width**0.5)[:, 0]


def estimate(draws: Tensor) -> Estimate:
    """The mean over the first axis and its standard error, in float64."""
    refuse_if(len(draws) < 2, f"A standard error needs at least 2 draws, got {len(draws)}. Draw more networks.")
    draws = draws.double()
    return Estimate(draws.mean(0), draws.std(0) / len(draws) ** 0.5)


def unit_inputs(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs on the unit sphere (zero stays zero) and the factors ‖x‖‖x′‖/d that the kernels of these lack."""
    if inputs.dim() != 2 or not inputs.is_floating_point() or 0 in inputs.shape:
        raise InvalidInputError(
            f"inputs must be a matrix of floating-point numbers (samples, features), got {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}."
        )
    if not bool(inputs.isfinite().all()):
        raise InvalidInputError("inputs contain infinite or undefined numbers; a kernel of these does not exist.")
    wide = inputs.double()
    norms = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return wide / torch.where(norms == 0, torch.ones_like(norms), norms), norms @ norms.mT / inputs.shape[1]


def require_same_device(inputs: Tensor, generator: torch.Generator) -> None:
    """Refuse a generator that draws elsewhere than where the inputs are."""
    if generator.device.type != inputs.device.type:
        raise InvalidInputError(
            f"The generator is on {generator.device} and the inputs are on {inputs.device}; make the generator with "
            f"torch.Generator({str(inputs.device)!r})."
        )


def chunks(networks: int, largest: int) -> list[int]:
    """`networks` cut into equal chunks of at most `largest`."""
    refuse_if(networks < 1, f"networks must be at least 1, got {networks}.")
    pieces = -(-networks // largest)
    return [networks // pieces + (piece < networks % pieces) for piece in range(pieces)]
