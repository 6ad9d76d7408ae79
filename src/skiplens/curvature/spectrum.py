"""The spectrum of the Hessian of any model's loss: all eigenvalues, or their extremes and density."""

import math
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from skiplens.base import Float, NotReachedError, Progress, Randomness, SkiplensError, pick, silent
from skiplens.base.arguments import accept_old_order
from skiplens.base.memory import share_of_memory
from skiplens.base.preserve_state import preserve_state
from skiplens.curvature import sampled
from skiplens.curvature.operator import Kind, LossOperator, loss_operator
from skiplens.curvature.problem import loss_batches
from skiplens.curvature.reading import FLAT, HessianSpectrum
from skiplens.graph import ResidualBlock, find_residual_blocks
from skiplens.graph.functional import ParameterChoice
from skiplens.graph.inputs import require_module
from skiplens.graph.loss import Loss
from skiplens.linalg.conditioning import absolute_quantile, condition_number
from skiplens.readings.reading import Provenance


@accept_old_order("model", "loss", "data", "method")
def hessian_spectrum(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = "cross_entropy",
    method: sampled.Method = "auto",
    kind: Kind = "hessian",
    parameters: ParameterChoice = None,
    blocks: bool | tuple[str, ...] = False,
    probes: int = 8,
    steps: int = 40,
    extremes: int = 1,
    vectors: bool = False,
    tolerance: float = 1e-4,
    max_products: int = 500,
    moment_products: int | None = None,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress = silent,
) -> HessianSpectrum:
    """The eigenvalues of the Hessian of a loss with respect to a model's parameters, all of them or their density.

    ``"exact"`` forms the matrix (one product for each parameter) and takes all eigenvalues in float64. ``"lanczos"``
    searches the extremes with residuals and samples the density from `probes` × `steps` products; what is sampled
    comes with error bars that hold. ``"auto"`` is exact up to 3,000 parameters.

    Args:
        model: Any module; it is left as it was.
        data: `(inputs, targets)` or an iterable of such batches, which is gone through for every product.
        loss: ``"cross_entropy"``, ``"mse"``, a function (outputs, targets) -> scalar, or None where the model returns
            its own loss.
        method: ``"auto"``, ``"exact"`` or ``"lanczos"``.
        kind: The matrix: ``"hessian"``, ``"gauss_newton"``, ``"fisher"`` or ``"empirical_fisher"``.
        parameters: Names of parameters, a test on names, or None for all that require a gradient.
        blocks: Also the spectrum of each residual block's parameters alone: True for all blocks, or their names.
        probes: Random vectors behind the density; their scatter is its error.
        steps: Lanczos steps (products) for each of them.
        extremes: Eigenpairs looked for at each end; 0 takes what the density shows.
        vectors: Keep the eigenvectors of the extremes in the reading.
        tolerance: Residual at which an extreme is good enough, relative to the largest |eigenvalue|.
        max_products: Products spent on the extremes at most.
        moment_products: Products for trace and Frobenius norm: at least 6, or 0 to take them from the density; chosen
            if not given.
        seed: Names the random vectors.
        memory: Bytes that may be used; half of what is free if not given.
        progress: Called as the work goes on.

    The operator behind it is `skiplens.curvature.loss_operator`; its `.to_scipy()` is a SciPy `LinearOperator` for
    any other solver.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> spectrum = hessian_spectrum(model, (inputs, torch.zeros(2, 1)), loss="mse")
        >>> spectrum.eigenvalues.tolist(), spectrum.condition_number, spectrum.index
        ([1.0, 4.0], 4.0, 0.0)
    """
    options = sampled.SpectrumOptions(
        method, kind, blocks, probes, steps, extremes, vectors, tolerance, max_products, moment_products, seed, memory
    )
    with preserve_state(require_module(model)):
        return _Measurement(model, loss, data, options, progress).spectrum(parameters)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """A model, its loss and data, and what is asked."""

    model: nn.Module
    loss: Loss
    data: Any
    options: sampled.SpectrumOptions
    progress: Progress

    def spectrum(self, parameters: ParameterChoice) -> HessianSpectrum:
        """The spectrum of the chosen parameters, with those of the blocks where they are asked for."""
        operator = self.operator(parameters)
        clock = Provenance.begin(self.options.difference(), self.options.seed, operator.device)
        method = sampled.choose_method(operator, self.options)
        groups: dict[str, tuple[str, ...]] = {}
        if self.options.blocks:
            first = next(iter(loss_batches(self.data, model_returns_loss=self.loss is None)))
            found = find_residual_blocks(self.model, first.inputs)
            groups = parameters_by_block(found, operator.names, self.options.blocks)
        if method == "exact":
            matrix = operator.dense()
            whole = self.reading(operator, exact_fields(matrix, self.options))
            blocks = {name: self.principal(matrix, operator, names) for name, names in groups.items()}
        else:
            whole = self.reading(operator, self.sampled(operator, "whole"))
            blocks = {}
            for name, names in groups.items():
                with suppress(NotReachedError):
                    blocks[name] = self.of_block(name, names)
        values = {name: block.values() for name, block in blocks.items()}
        return replace(whole, block_values=values, provenance=clock.end())

    def operator(self, parameters: ParameterChoice) -> LossOperator:
        """The matrix of the chosen parameters."""
        how: dict[str, Any] = {"kind": self.options.kind, "memory": self.options.memory, "progress": self.progress}
        with share_of_memory(1 - sampled.SHARE_OF_VECTORS):
            return loss_operator(self.model, self.data, loss=self.loss, parameters=parameters, **how)

    def principal(self, matrix: Tensor, operator: LossOperator, names: tuple[str, ...]) -> HessianSpectrum:
        """The spectrum of the rows and columns of these parameters."""
        parts = operator.unflatten(operator.gradient)
        chosen = operator.flatten({name: torch.full_like(part, name in names) for name, part in parts.items()})
        rows = chosen.nonzero().flatten()
        fields = exact_fields(matrix[rows][:, rows], replace(self.options, vectors=False))
        return self.reading(operator, fields, names)

    def of_block(self, name: str, names: tuple[str, ...]) -> HessianSpectrum:
        """The spectrum of these parameters alone: exact where that takes fewer products than sampling."""
        operator, options = self.operator(names), replace(self.options, vectors=False)
        if operator.size <= options.probes * options.steps and sampled.choose_method(operator, options) == "exact":
            return self.reading(operator, exact_fields(operator.dense(), options), names)
        return self.reading(operator, self.sampled(operator, name), names)

    def sampled(self, operator: LossOperator, name: str) -> dict[str, Any]:
        """Extremes and density; each matrix has random vectors of its own."""
        randomness = Randomness(self.options.seed).child("hessian_spectrum", name)
        return sampled.sampled_fields(operator, self.options, randomness, self.progress)

    def reading(
        self, operator: LossOperator, fields: dict[str, Any], names: tuple[str, ...] | None = None
    ) -> HessianSpectrum:
        """The fields with what is known of the loss."""
        parts = operator.unflatten(operator.gradient)
        gradient = {name: part for name, part in parts.items() if names is None or name in names}
        return HessianSpectrum(
            of=operator.kind,
            samples=operator.samples,
            loss=float(operator.loss),
            gradient_norm=math.hypot(*(vector_norm(part, dtype=torch.float64).item() for part in gradient.values())),
            parameter_shapes={name: tuple(part.shape) for name, part in gradient.items()},
            **fields,
        )


def parameters_by_block(
    blocks: Iterable[ResidualBlock], chosen: Collection[str], wanted: bool | tuple[str, ...] = True
) -> dict[str, tuple[str, ...]]:
    """For each wanted block (or all) the chosen parameters of its branch and shortcut; one without any is left out."""
    found = {}
    for block in blocks:
        read = dict.fromkeys((*block.branch.parameters, *block.shortcut.parameters))
        found[block.name] = tuple(name for name in read if name in chosen)
    names = tuple(found) if isinstance(wanted, bool) else wanted
    chosen = {name: pick(found, name, f"The model has no residual block {name!r}.") for name in names}
    return {name: parameters for name, parameters in chosen.items() if parameters}


_ROUNDING = 1e-10  # an eigenvalue is negative beyond rounding if below this times the largest |eigenvalue|


def exact_fields(matrix: Float[Tensor, "params params"], options: sampled.SpectrumOptions) -> dict[str, Any]:
    """What a reading says of a matrix: everything about its eigenvalues, in float64."""
    matrix = matrix.double()
    if not bool(torch.isfinite(matrix).all()):
        raise SkiplensError("The matrix has entries that are NaN or infinite; look for a loss that overflows.")
    symmetric = (matrix + matrix.T) / 2
    if options.vectors:
        values, vectors = torch.linalg.eigh(symmetric)
    else:
        values, vectors = torch.linalg.eigvalsh(symmetric), symmetric.new_zeros(0, 0)
    size, smallest, largest = len(values), values[0].item(), values[-1].item()
    top, shares = max(abs(smallest), abs(largest)), torch.full_like(values, 1 / size)
    asymmetry = float((matrix - symmetric).norm())  # what the products' rounding can have moved an eigenvalue by
    # and a backward-stable solver moves it by about the rounding of the size
    error = asymmetry + float(torch.finfo(values.dtype).eps * size**0.5 * values.abs().max())
    ends = sorted({*range(min(options.extremes, size)), *range(max(0, size - options.extremes), size)})
    quantile = absolute_quantile(values, shares)
    least = max(0.0, quantile - error)
    return {
        "method": "exact",
        "parameters": size,
        "eigenvalues": values,
        "nodes": values,
        "weights": shares,
        "largest": largest,
        "smallest": smallest,
        "extremes": values[ends],
        "extreme_residuals": torch.full((len(ends),), error, dtype=torch.float64),
        "vectors": vectors[:, ends] if options.vectors else vectors,
        "trace": symmetric.trace().item(),
        "frobenius_norm": symmetric.norm().item(),
        "condition_interval": tuple(condition_number(top, edge) for edge in (quantile + error, least)),
        "index_interval": (_share(values < -error), _share(values < error)),
        "flat_interval": (_share(values.abs() <= FLAT * top - error), _share(values.abs() <= FLAT * top + error)),
        "rounding": max(_ROUNDING * top, asymmetry),
        "products": size,
        **sampled.exact_curve(values),
    }


def _share(found: Tensor) -> float:
    return int(found.sum()) / len(found)
