"""The spectrum of the Hessian of any model's loss."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.derivatives.functional import ParameterChoice
from skiplens.derivatives.hessian import LossOperator, loss_operator
from skiplens.derivatives.hessian.batches import loss_batches
from skiplens.derivatives.hessian.losses import Loss
from skiplens.derivatives.hessian.options import LossOptions
from skiplens.lenses.curvature.blocks import parameters_by_block
from skiplens.lenses.curvature.exact import exact_fields
from skiplens.lenses.curvature.options import Method, SpectrumOptions
from skiplens.lenses.curvature.plan import choose_method
from skiplens.lenses.curvature.sampled import Sampling, sampled_fields
from skiplens.readings import HessianSpectrum, Provenance
from skiplens.residual import find_residual_blocks
from skiplens.residual.trial import require_module


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

    The operator behind it is `skiplens.derivatives.hessian.loss_operator`; its `.to_scipy()` is a SciPy
    `LinearOperator` for any other solver.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> spectrum = hessian_spectrum(model, "mse", (inputs, torch.zeros(2, 1)))
        >>> spectrum.eigenvalues.tolist(), spectrum.condition_number, spectrum.index
        ([1.0, 4.0], 4.0, 0.0)
    """
    asked = SpectrumOptions.from_json({"method": method, **options})
    with untouched(require_module(model)):
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
