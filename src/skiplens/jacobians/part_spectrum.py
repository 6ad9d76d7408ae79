"""Parts of a network linearised at a point: products with their Jacobians, and the singular values of these."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Generator, Tensor, fx

from skiplens.base import CoupledSamplesError, DidNotConverge, Float, InvalidInputError, Progress, refuse_if, silent
from skiplens.base.memory import budget_bytes, is_shortage, require_fits
from skiplens.graph.network import Call, ResidualNetwork, plain_call, plan
from skiplens.graph.operations import operation
from skiplens.linalg.low_rank_update import updated_eigenvalues
from skiplens.linalg.singular_values import all_singular_values, singular_density
from skiplens.linalg.trace import sphere

Function = Callable[[Tensor], Tensor]

ROOM = 2**26  # bytes that one batched product may take; larger blocks win nothing on a processor
TEMPORARIES = 8  # values of the widest layer that live at once in a product with one vector
_BATCH_NORMS = {"aten.batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional"}


Statistics = tuple[Tensor, Tensor]  # mean and inverse standard deviation of each channel, shaped to multiply a batch
_SPARE = 8  # random vectors beyond the rank, so that the span of their images is the whole range to working precision


class Linearised:
    """The Jacobian of `function` at `point`, known by its products; inputs and outputs are flattened row first.

    One forward pass is kept. Jᵀu is a backward pass; Jv is the derivative of Jᵀu with respect to u, so everything that
    has second derivatives in torch has it. Make and use it within `transformable()`.
    """

    def __init__(self, function: Function, point: Tensor, room: int = ROOM, widest: int = 0) -> None:
        """Run the function once; products take about `room` bytes, the largest value inside `widest`."""
        refuse_if(not point.is_floating_point(), f"A Jacobian needs a floating-point input, got {point.dtype}.")
        with torch.enable_grad():
            self._point = point.detach().clone().requires_grad_()
            self._output = function(self._point)
        if not self._output.numel() or not self._point.numel():
            raise InvalidInputError(
                f"A Jacobian from shape {tuple(point.shape)} to shape {tuple(self._output.shape)} has no entries; "
                "look at a part of the network whose input and output are not empty."
            )
        self.input_shape, self.output_shape = tuple(point.shape), tuple(self._output.shape)
        self.rows, self.columns = self._output.numel(), self._point.numel()
        self.dtype, self.device = point.dtype, point.device
        largest = max(widest, max(self.rows, self.columns) * point.element_size())
        self.vectors = max(1, room // (TEMPORARIES * largest))  # of one batched product

    def adjoint(self, vectors: Float[Tensor, "vectors rows"]) -> Float[Tensor, "vectors columns"]:
        """Jᵀ times each row of `vectors`."""
        if not self._output.requires_grad:
            return vectors.new_zeros(len(vectors), self.columns)
        return self._batched(self._output, self._point, vectors, self.output_shape)

    def forward(self, vectors: Float[Tensor, "vectors columns"]) -> Float[Tensor, "vectors rows"]:
        """J times each row of `vectors`."""
        cotangent, pulled = self._pullback
        if pulled is None or not pulled.requires_grad:
            return vectors.new_zeros(len(vectors), self.rows)
        return self._batched(pulled, cotangent, vectors, self.input_shape)

    @cached_property
    def _pullback(self) -> tuple[Tensor, Tensor | None]:
        """A variable u and Jᵀu as a function of it."""
        with torch.enable_grad():
            cotangent = torch.zeros_like(self._output).requires_grad_()
            if not self._output.requires_grad:
                return cotangent, None
            (pulled,) = torch.autograd.grad(
                self._output, self._point, cotangent, create_graph=True, retain_graph=True, allow_unused=True
            )
        return cotangent, pulled

    def _batched(self, output: Tensor, of: Tensor, vectors: Tensor, shape: tuple[int, ...]) -> Tensor:
        if not len(vectors):
            return vectors.new_zeros(0, of.numel())
        found = []
        for part in vectors.split(self.vectors):
            try:
                found.append(self._product(output, of, part, shape))
            except (RuntimeError, NotImplementedError) as error:
                if len(part) == 1 or is_shortage(error):
                    raise
                self.vectors = 1  # an operation without a rule for several vectors
                found += [self._product(output, of, one[None], shape) for one in part]
        return torch.cat(found)

    def _product(self, output: Tensor, of: Tensor, part: Tensor, shape: tuple[int, ...]) -> Tensor:
        single, block = len(part) == 1, part.reshape(-1, *shape)
        weights = block[0] if single else block
        (product,) = torch.autograd.grad(
            output, of, weights, retain_graph=True, is_grads_batched=not single, allow_unused=True
        )
        product = part.new_zeros(len(part), of.numel()) if product is None else product.detach()
        return product.reshape(len(part), -1)


def coupling_norms(network: ResidualNetwork, start: str, end: str, samples: int) -> dict[str, Statistics]:
    """The batch norms between two nodes that use the statistics of a batch of `samples`, and these statistics.

    An instance norm is exported as a batch norm of one large sample; it couples nothing and is left out.
    """
    first = network.node(start)
    moving, nodes = {first}, []
    for node in plan([network.node(end)], [first]):
        if not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
            if node.op == "call_function" and operation(node) in _BATCH_NORMS:
                training = next(argument for argument in node.args if isinstance(argument, bool))
                if training and samples > 1 and _source(node).meta["val"].shape[0] == samples:
                    nodes.append(node)
    values = network.run({_source(node).name for node in nodes})
    found = {}
    for node in nodes:
        epsilon = [argument for argument in node.args if isinstance(argument, float)][1]  # momentum comes first
        value = values[_source(node).name].detach()
        others = [axis for axis in range(value.ndim) if axis != 1]
        variance = value.var(others, unbiased=False, keepdim=True)
        found[node.name] = value.mean(others, keepdim=True), (variance + epsilon).rsqrt()
    return found


def frozen_call(statistics: Mapping[str, Statistics]) -> Call:
    """Operations as they are, but these batch norms with fixed statistics."""

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if node.name not in statistics:
            return plain_call(node, arguments, keywords)
        mean, inverse_deviation = statistics[node.name]
        value, weight, bias = arguments[:3]
        normalised = (value - mean) * inverse_deviation
        if weight is not None:
            normalised = normalised * weight.reshape(mean.shape)
        if bias is not None:
            normalised = normalised + bias.reshape(mean.shape)
        if operation(node) == "aten.batch_norm":
            return normalised
        rest = node.meta["val"][1:]  # statistics, which nothing on the way reads
        return (normalised, *(torch.zeros(tuple(entry.shape), device=value.device) for entry in rest))

    return call


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node), "a batch norm reads a node"
    return source


@dataclass(frozen=True)
class Spectrum:
    """Singular values, descending, with the share of all that each stands for."""

    values: Float[Tensor, " values"]  # all singular values, or nodes of their density
    weights: Float[Tensor, " values"]  # they add up to one
    count: int
    method: str  # how they were found: "exact", "low rank" (exact too) or "lanczos"
    coupled: bool  # whether the samples of the batch were seen as coupled

    @classmethod
    def of_all(cls, values: Float[Tensor, " values"], method: str, coupled: bool) -> "Spectrum":
        """The spectrum of all singular values."""
        return cls(values, torch.full_like(values, 1 / len(values)), len(values), method, coupled)

    @classmethod
    def together(cls, parts: "list[Spectrum]") -> "Spectrum":
        """The spectrum of all samples from those of pieces of them."""
        if len(parts) == 1:
            return parts[0]
        count = sum(part.count for part in parts)
        order = torch.cat([part.values for part in parts]).sort(descending=True)
        weights = torch.cat([part.weights * (part.count / count) for part in parts])
        method = next((part.method for part in parts if part.method == "lanczos"), parts[0].method)
        return cls(order.values, weights[order.indices], count, method, any(part.coupled for part in parts))


@dataclass(frozen=True)
class Part:
    """A function of a batch, where it is looked at, and its form without coupling of samples."""

    name: str  # what to call it in errors
    function: Function
    frozen: Function | None  # the same with batch statistics frozen; None where no batch norm couples samples
    point: Tensor
    samples: int
    channels: int  # channels of the batch norms that couple samples
    room: int = ROOM  # bytes that one batched product may take
    widest: int = 0  # bytes of the largest value between input and output

    def linearised(self, function: Function) -> Linearised:
        """The function at the part's point."""
        return Linearised(function, self.point, self.room, self.widest)


@dataclass(frozen=True)
class SpectrumEffort:
    """How to find singular values, and how much may be spent; see `jacobian_spectrum`."""

    coupling: Literal["auto", "sample", "batch"] = "auto"
    method: Literal["auto", "exact", "lanczos"] = "auto"
    steps: int = 80
    probes: int = 4
    work: float = 1e12
    memory: int | None = None


def part_spectrum(part: Part, effort: SpectrumEffort, generator: Generator, progress: Progress = silent) -> Spectrum:
    """The singular values of the Jacobian of `part`; to be called within `transformable()`."""
    whole = part.linearised(part.function)
    kept = keeps_samples(whole, part.samples)
    if kept and not couples_samples(whole, part.samples, generator):
        return _blockwise(part, whole, effort, generator)
    if effort.coupling != "sample":
        return _joint(part, whole, effort, generator, progress)
    if not kept:
        raise CoupledSamplesError(
            f"{part.name!r} maps shape {whole.input_shape} to shape {whole.output_shape} for {part.samples} samples: "
            "its first axis is not the samples throughout. Ask for coupling='batch', or look at a part that keeps them."
        )
    frozen = whole if part.frozen is None else part.linearised(part.frozen)
    if couples_samples(frozen, part.samples, generator):
        raise CoupledSamplesError(
            f"The samples of the batch depend on each other in {part.name!r}, and not only through the statistics of "
            "batch norm layers, which could be frozen. Ask for coupling='batch'."
        )
    return _blockwise(part, frozen, effort, generator)


def _blockwise(part: Part, linearised: Linearised, effort: SpectrumEffort, generator: Generator) -> Spectrum:
    """The union of the singular values of each sample's Jacobian."""
    rows, columns = linearised.rows // part.samples, linearised.columns // part.samples
    if not _exactly(part, linearised, effort, (part.samples, rows, columns)):
        return _density(linearised, effort, generator, coupled=False)
    values = all_singular_values(sample_jacobians(linearised, part.samples))
    return Spectrum.of_all(values.flatten().sort(descending=True).values, "exact", coupled=False)


def _joint(part: Part, whole: Linearised, effort: SpectrumEffort, generator: Generator, progress: Progress) -> Spectrum:
    """The singular values of the Jacobian of the whole batch."""
    dense = (1, whole.rows, whole.columns)
    if part.frozen is not None and keeps_samples(whole, part.samples):
        blocks = (part.samples, whole.rows // part.samples, whole.columns // part.samples)
        # One secular equation for each of the four vectors of each channel, in operations of a decomposition, which
        # run much faster one by one: measured as 100 for each entry of the (never formed) matrix of eigenvectors, and
        # as 3e9 for what does not depend on the size.
        update = 4.0 * part.channels * (3e9 + 100 * float(min(whole.rows, whole.columns)) ** 2)
        operations = operations_of(*blocks) + update
        if operations < operations_of(*dense) and _exactly(part, whole, effort, blocks, operations):
            frozen = part.linearised(part.frozen)
            try:
                values = coupled_singular_values(whole, frozen, part.samples, 2 * part.channels, generator, progress)
                return Spectrum.of_all(values.to(whole.dtype), "low rank", coupled=True)
            except DidNotConverge:  # something else couples the samples as well: as if there were no frozen form
                pass
    if not _exactly(part, whole, effort, dense):
        return _density(whole, effort, generator, coupled=True)
    return Spectrum.of_all(all_singular_values(whole_jacobian(whole)), "exact", coupled=True)


def _density(linearised: Linearised, effort: SpectrumEffort, generator: Generator, coupled: bool) -> Spectrum:
    """The density, from random vectors on the smaller side, with as many of the steps as memory has room for."""
    forward, adjoint = linearised.forward, linearised.adjoint
    if linearised.rows < linearised.columns:
        forward, adjoint = adjoint, forward
    size = min(linearised.rows, linearised.columns)
    each = effort.probes * (linearised.rows + linearised.columns) * linearised.dtype.itemsize
    budget = budget_bytes(linearised.device, effort.memory)
    what = f"The density of singular values of a {linearised.rows} × {linearised.columns} Jacobian"
    fewest = density_bytes(effort, linearised.rows, linearised.columns, linearised.dtype)
    require_fits(fewest, what, "Give fewer samples, or ask for probes=1.", budget)
    starts = sphere(size, effort.probes, generator).T.to(linearised.device, linearised.dtype)
    found = singular_density(forward, adjoint, starts, min(effort.steps, budget // each))
    return Spectrum(found.nodes, found.weights, size, "lanczos", coupled)


def matrix_bytes(count: int, rows: int, columns: int) -> int:
    """Bytes of `count` matrices, twice in float64 for a decomposition, and of their Gram matrices."""
    return 8 * count * (3 * rows * columns + min(rows, columns) ** 2)


def density_bytes(effort: SpectrumEffort, rows: int, columns: int, dtype: torch.dtype) -> int:
    """Bytes of a basis of the fewest Lanczos steps of which a density says something."""
    return min(effort.steps, 8) * effort.probes * (rows + columns) * dtype.itemsize


def _exactly(
    part: Part, linearised: Linearised, effort: SpectrumEffort, shape: tuple[int, int, int], operations: float = 0.0
) -> bool:
    """Whether all singular values shall be computed from matrices of this shape, with so many operations."""
    count, rows, columns = shape
    needed = matrix_bytes(count, rows, columns)
    budget = budget_bytes(linearised.device, effort.memory)
    if effort.method == "exact":
        what = f"All singular values of {part.name!r} ({count} Jacobian(s) of {rows} × {columns})"
        require_fits(needed, what, "Ask for method='lanczos', or give fewer samples.", budget)
        return True
    return effort.method == "auto" and needed <= budget and (operations or operations_of(*shape)) <= effort.work


def operations_of(count: int, rows: int, columns: int) -> float:
    """Floating operations of `count` decompositions."""
    small, large = sorted((rows, columns))
    return count * (2.0 * large * small**2 + 10.0 * small**3)


def coupled_singular_values(
    coupled: Linearised, frozen: Linearised, samples: int, rank: int, generator: Generator, progress: Progress
) -> Float[Tensor, " values"]:
    """All singular values of the Jacobian of a whole batch, descending, without ever forming it.

    Batch norm couples samples through the mean and the scale of each channel, two numbers. So the Jacobian is that with
    frozen statistics, block diagonal over samples, plus a matrix E of rank at most two for each channel. The blocks are
    diagonalised sample by sample; E is found by a few products with random vectors, and added by secular equations.
    Values below 1e-8 of the largest one come out as noise of that size, as from any Gram matrix in float64.

    `coupled` is the function of the batch, `frozen` the same with frozen statistics; both have the samples as their
    first axis. `rank` bounds that of their difference: two for each channel of each batch norm.
    """
    U, V = _difference(coupled, frozen, rank, generator)
    blocks = sample_jacobians(frozen, samples).double()
    if coupled.rows > coupled.columns:  # the Gram matrix on the smaller side
        blocks, U, V = blocks.mT, V, U
    values, vectors = torch.linalg.eigh(blocks @ blocks.mT)
    # (A + U Vᵀ)(A + U Vᵀ)ᵀ = A Aᵀ + A V Uᵀ + U (A V)ᵀ + U VᵀV Uᵀ
    images = (blocks @ V.reshape(samples, -1, V.shape[1])).flatten(0, 1)
    factors = torch.cat([images, U], dim=1).reshape(samples, -1, 2 * U.shape[1])
    eye = torch.eye(U.shape[1], dtype=U.dtype, device=U.device)
    core = torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([eye, V.T @ V], 1)])
    eigenvalues = updated_eigenvalues(values.flatten(), (vectors.mT @ factors).flatten(0, 1), core, progress)
    return eigenvalues.clamp_min(0).sqrt().flip(0)


def _difference(
    coupled: Linearised, frozen: Linearised, rank: int, generator: Generator
) -> tuple[Float[Tensor, "rows rank"], Float[Tensor, "columns rank"]]:
    """U with orthonormal columns and V such that J = J_frozen + U Vᵀ, in float64."""
    count = min(rank + _SPARE, coupled.rows, coupled.columns)
    draws = torch.randn((count + 1, coupled.columns), generator=generator, device=generator.device)
    probes = draws.to(coupled.device, coupled.dtype)
    images = (coupled.forward(probes) - frozen.forward(probes)).double().T
    left, sizes, _ = torch.linalg.svd(images[:, :count], full_matrices=False)
    noise = 100 * torch.finfo(coupled.dtype).eps * (sizes[0] + frozen.forward(probes[:1]).norm())
    U = left[:, sizes > noise][:, :rank]
    fresh = images[:, count]
    if float((fresh - U @ (U.T @ fresh)).norm()) > 10 * float(noise):
        raise DidNotConverge(
            f"The coupling of samples has more than the expected rank of {rank}: something other than batch norm "
            "couples them. Ask for method='lanczos'."
        )
    vectors = U.T.to(coupled.dtype)
    return U, (coupled.adjoint(vectors) - frozen.adjoint(vectors)).double().T


def keeps_samples(linearised: Linearised, samples: int) -> bool:
    """Whether the first axis of input and output is the samples."""
    return all(shape[:1] == (samples,) for shape in (linearised.input_shape, linearised.output_shape))


def couples_samples(linearised: Linearised, samples: int, generator: Generator) -> bool:
    """Whether some sample's output depends on another sample's input.

    Samples are split in two by each bit of their number, so that any two are apart in some split; the gradient of a
    random combination of one half's outputs must not reach the other half's inputs.
    """
    number = torch.arange(samples, device=linearised.device)
    halves = [(number >> bit) & 1 == side for bit in range((samples - 1).bit_length()) for side in (0, 1)]
    if not halves:
        return False
    inside, across = 0.0, 0.0
    for group in torch.stack(halves).split(linearised.vectors):
        shape, mask = (len(group), samples, linearised.rows // samples), group[:, :, None]
        draws = torch.randn(shape, generator=generator, device=generator.device).to(linearised.device, linearised.dtype)
        gradients = linearised.adjoint((draws * mask).flatten(1)).reshape(len(group), samples, -1).abs()
        inside = max(inside, float(gradients.max()))
        across = max(across, float((gradients * ~mask).max()))
    return across > 1e-3 * torch.finfo(linearised.dtype).eps * inside


def sample_jacobians(linearised: Linearised, samples: int) -> Float[Tensor, "samples outputs inputs"]:
    """The Jacobian of each sample's output with respect to its own input, for a function that does not couple samples.

    One product serves all samples: the same unit vector in every sample gives that row (or column) of all Jacobians.
    """
    outputs, inputs = linearised.rows // samples, linearised.columns // samples
    by_rows, size = outputs <= inputs, min(outputs, inputs)
    product = linearised.adjoint if by_rows else linearised.forward
    whole = torch.empty((samples, outputs, inputs), dtype=linearised.dtype, device=linearised.device)
    step = max(1, min(2**24 // (samples * size), linearised.vectors))
    for start in range(0, size, step):
        units = torch.eye(size, dtype=linearised.dtype, device=linearised.device)[start : start + step]
        found = product(units[:, None, :].expand(-1, samples, -1).flatten(1)).reshape(len(units), samples, -1)
        if by_rows:
            whole[:, start : start + step] = found.transpose(0, 1)
        else:
            whole[:, :, start : start + step] = found.permute(1, 2, 0)
    return whole


def whole_jacobian(linearised: Linearised) -> Float[Tensor, "rows columns"]:
    """The Jacobian of all outputs with respect to all inputs."""
    return sample_jacobians(linearised, 1)[0]
