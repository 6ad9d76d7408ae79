"""The spectrum of the Hessian of any model's loss."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, SkiplensError, did_you_mean
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.curvature.operator import LossOperator, LossOptions, loss_operator
from skiplens.curvature.problem import loss_batches
from skiplens.curvature.reading import FLAT, HessianSpectrum, absolute_quantile, condition_of
from skiplens.curvature.sampled import Method, Sampling, SpectrumOptions, choose_method, exact_curve, sampled_fields
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.dissect import find_residual_blocks
from skiplens.graph.functional import ParameterChoice
from skiplens.graph.inputs import require_module
from skiplens.graph.loss import Loss
from skiplens.readings.reading import Provenance


def hessian_spectrum(
    model: nn.Module,
    loss: Loss,
    data: Any,
    method: Method = "auto",
    *,
    parameters: ParameterChoice = None,
    progress: Progress = silent,
    **options: Any,
) -> HessianSpectrum:
    """The eigenvalues of the Hessian of a loss by a model's parameters, all of them or their density.

    ``"exact"`` forms the matrix (one product for each parameter) and takes all eigenvalues in float64. ``"lanczos"``
    searches the extremes with residuals and samples the density from `probes` × `steps` products; what is sampled
    comes with error bars that hold. ``"auto"`` is exact up to 3,000 parameters.

    Args:
        model: Any module; it is left as it was.
        loss: ``"cross_entropy"``, ``"mse"``, a function (outputs, targets) -> scalar, or None where the model returns
            its own loss.
        data: `(inputs, targets)` or an iterable of such batches, which is gone through for every product.
        method: ``"auto"``, ``"exact"`` or ``"lanczos"``.
        parameters: Names of parameters, a test on names, or None for all that require a gradient.
        progress: Called as the work goes on.
        options: Fields of `SpectrumOptions`: kind, blocks, probes, steps, extremes, vectors, tolerance, max_products,
            moment_products, seed, memory.

    The operator behind it is `skiplens.curvature.operator.loss_operator`; its `.to_scipy()` is a SciPy
    `LinearOperator` for any other solver.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> spectrum = hessian_spectrum(model, "mse", (inputs, torch.zeros(2, 1)))
        >>> spectrum.eigenvalues.tolist(), spectrum.condition_number, spectrum.index
        ([1.0, 4.0], 4.0, 0.0)
    """
    asked = SpectrumOptions.from_json({"method": method, **options})
    with preserve_state(require_module(model)):
        return _Measurement(model, loss, data, asked, progress).spectrum(parameters)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """A model, its loss and data, and what is asked."""

    model: nn.Module
    loss: Loss
    data: Any
    options: SpectrumOptions
    progress: Progress

    def spectrum(self, parameters: ParameterChoice) -> HessianSpectrum:
        """The spectrum of the chosen parameters, with those of the blocks where they are asked for."""
        operator = self.operator(parameters)
        clock = Provenance.begin(self.options.difference(), self.options.seed, operator.device)
        method = choose_method(operator, self.options)
        groups = self.groups(operator)
        if method == "exact":
            matrix = operator.dense()
            whole = self.reading(operator, exact_fields(matrix, self.options))
            blocks = {name: self.principal(matrix, operator, names) for name, names in groups.items()}
        else:
            whole = self.reading(operator, self.sampled(operator, "whole"))
            blocks = {name: self.of_block(name, names) for name, names in groups.items()}
        values = {name: block.values() for name, block in blocks.items()}
        return replace(whole, block_values=values, provenance=clock.end())

    def operator(self, parameters: ParameterChoice) -> LossOperator:
        """The matrix of the chosen parameters."""
        planning: LossOptions = {"progress": self.progress, "budget": self.options.memory}
        return loss_operator(self.model, self.loss, self.data, self.options.kind, parameters, **planning)

    def groups(self, operator: LossOperator) -> dict[str, tuple[str, ...]]:
        """The parameters of each block that is asked for."""
        if not self.options.blocks:
            return {}
        first = next(iter(loss_batches(self.data, model_returns_loss=self.loss is None)))
        found = find_residual_blocks(self.model, first.inputs)
        return parameters_by_block(found, operator.names, self.options.blocks)

    def principal(self, matrix: Tensor, operator: LossOperator, names: tuple[str, ...]) -> HessianSpectrum:
        """The spectrum of the rows and columns of these parameters."""
        parts = operator.unflatten(operator.gradient)
        chosen = operator.flatten({name: torch.full_like(part, name in names) for name, part in parts.items()})
        rows = chosen.nonzero().flatten()
        fields = exact_fields(matrix[rows][:, rows], replace(self.options, vectors=False))
        return self.reading(operator, fields, names)

    def of_block(self, name: str, names: tuple[str, ...]) -> HessianSpectrum:
        """The spectrum of these parameters alone: exact where that takes fewer products than sampling."""
        operator = self.operator(names)
        options = replace(self.options, vectors=False)
        if operator.size <= options.probes * options.steps and choose_method(operator, options) == "exact":
            return self.reading(operator, exact_fields(operator.dense(), options), names)
        return self.reading(operator, self.sampled(operator, name), names)

    def sampled(self, operator: LossOperator, name: str) -> dict[str, Any]:
        """Extremes and density; each matrix has random vectors of its own."""
        randomness = Randomness(self.options.seed).child("hessian_spectrum", name)
        return sampled_fields(operator, Sampling(self.options, randomness, self.progress))

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
            gradient_norm=float(torch.cat([part.flatten().double() for part in gradient.values()]).norm()),
            parameter_shapes={name: tuple(part.shape) for name, part in gradient.items()},
            **fields,
        )


def parameters_by_block(
    blocks: Iterable[ResidualBlock], chosen: Collection[str], wanted: bool | tuple[str, ...] = True
) -> dict[str, tuple[str, ...]]:
    """For each wanted block the chosen parameters of its branch and its shortcut; a block without any is left out.

    Args:
        blocks: The residual blocks of a model.
        chosen: Names of the parameters that derivatives are taken of.
        wanted: True for all blocks, or their names.
    """
    found = {block.name: _parameters(block, chosen) for block in blocks}
    names = tuple(found) if isinstance(wanted, bool) else wanted
    for name in names:
        if name not in found:
            raise InvalidInputError(f"The model has no residual block {name!r}. {did_you_mean(name, found)}")
    return {name: found[name] for name in names if found[name]}


def _parameters(block: ResidualBlock, chosen: Collection[str]) -> tuple[str, ...]:
    read = dict.fromkeys((*block.branch.parameters, *block.shortcut.parameters))
    return tuple(name for name in read if name in chosen)


_ROUNDING = 1e-10  # an eigenvalue is negative beyond rounding if below this times the largest |eigenvalue|


def exact_fields(matrix: Float[Tensor, "params params"], options: SpectrumOptions) -> dict[str, Any]:
    """What a reading says of a matrix: everything about its eigenvalues, in float64."""
    matrix = matrix.double()
    if not bool(torch.isfinite(matrix).all()):
        raise SkiplensError("The matrix has entries that are NaN or infinite; look for a loss that overflows.")
    symmetric = (matrix + matrix.T) / 2
    values, vectors = _decomposed(symmetric, options.vectors)
    size, smallest, largest = len(values), values[0].item(), values[-1].item()
    asymmetry = float((matrix - symmetric).norm())  # what the products' rounding can have moved an eigenvalue by
    error = asymmetry + _solver_error(values)
    ends, top = _ends(size, options.extremes), max(abs(smallest), abs(largest))
    return {
        "method": "exact",
        "parameters": size,
        "eigenvalues": values,
        "nodes": values,
        "weights": torch.full_like(values, 1 / size),
        "largest": largest,
        "smallest": smallest,
        "extremes": values[ends],
        "extreme_residuals": torch.full((len(ends),), error, dtype=torch.float64),
        "vectors": vectors[:, ends] if options.vectors else vectors,
        "trace": symmetric.trace().item(),
        "frobenius_norm": symmetric.norm().item(),
        "condition_interval": _condition_interval(values, top, error),
        "index_interval": (_share(values < -error), _share(values < error)),
        "flat_interval": (_share(values.abs() <= FLAT * top - error), _share(values.abs() <= FLAT * top + error)),
        "rounding": max(_ROUNDING * top, asymmetry),
        "products": size,
        **exact_curve(values),
    }


def _decomposed(symmetric: Tensor, vectors: bool) -> tuple[Tensor, Tensor]:
    if vectors:
        return tuple(torch.linalg.eigh(symmetric))
    return torch.linalg.eigvalsh(symmetric), symmetric.new_zeros(0, 0)


def _ends(size: int, extremes: int) -> list[int]:
    """Ranks of the lowest and highest eigenvalues, each once."""
    return sorted({*range(min(extremes, size)), *range(max(0, size - extremes), size)})


def _condition_interval(values: Tensor, top: float, error: float) -> tuple[float, float]:
    """The condition number if every eigenvalue may be off by `error`; infinite where the quantile may be zero."""
    quantile = absolute_quantile(values, torch.full_like(values, 1 / len(values)))
    return condition_of(top, quantile + error), condition_of(top, max(0.0, quantile - error))


def _share(found: Tensor) -> float:
    return int(found.sum()) / len(found)


def _solver_error(values: Tensor) -> float:
    """A backward-stable solver moves eigenvalues by about the rounding of the size."""
    return float(torch.finfo(values.dtype).eps * len(values) ** 0.5 * values.abs().max())
