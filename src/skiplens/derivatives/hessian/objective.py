"""The loss of a batch as a function of the chosen parameters, in one dtype, that leaves the model as it was."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError, SkiplensError
from skiplens.data.batch import Batch
from skiplens.derivatives.functional import ParameterChoice, PureModel, pure_model
from skiplens.derivatives.hessian.convolution import PlainConvolutions
from skiplens.derivatives.hessian.losses import LossRule


@dataclass(frozen=True)
class Objective:
    """A model, its parameters in the dtype to compute in, and the loss of its outputs."""

    pure: PureModel
    rule: LossRule
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.pure.device

    def leaves(self) -> list[Tensor]:
        """Fresh leaves of the autograd graph that share the chosen parameters' memory, in their order."""
        return list(self.pure.leaves().values())

    def outputs(self, leaves: list[Tensor], batch: Batch) -> Any:
        """What the model returns for a batch with `leaves` in place of its chosen parameters.

        Each call works on its own copy of the buffers: running statistics stay as they are, and a graph that is kept
        does not see the next call change what it has saved.
        """
        arguments = batch.arguments()
        chosen = dict(zip(self.pure.parameters, leaves, strict=True))
        replaced = {alias: chosen.get(name, value) for alias, (name, value) in self.pure.aliases.items()}
        for name, _ in self.pure.model.named_buffers(remove_duplicate=False):
            replaced[name] = replaced[name].clone()
        try:
            with PlainConvolutions():
                return functional_call(
                    self.pure.model, replaced, arguments.positional, arguments.named, tie_weights=False
                )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, SkiplensError) or isinstance(error, torch.OutOfMemoryError):
                raise
            raise InvalidInputError(f"The model cannot be called with these inputs ({arguments}): {error}") from error

    def total(self, outputs: Any, batch: Batch) -> Tensor:
        """The batch's part of the loss before the division by all shares; refused where it is no number."""
        value = self.rule.total(outputs, batch.targets)
        return require_scalar(value)

    def prepared(self, batch: Batch) -> Batch:
        """The batch on the model's device, its floating tensors in the dtype that is computed in."""
        return batch.to(self.device, self.dtype)


def objective(model: nn.Module, rule: LossRule, parameters: ParameterChoice, dtype: torch.dtype | None) -> Objective:
    """The objective with the parameters in `dtype`; by default in theirs, or float32 if they have fewer bits."""
    pure = pure_model(model, parameters)
    dtype = _working_dtype(pure.dtype if dtype is None else dtype)
    chosen = {name: tensor.to(dtype) for name, tensor in pure.parameters.items()}
    aliases = {alias: (name, chosen.get(name, _as(value, dtype))) for alias, (name, value) in pure.aliases.items()}
    buffers = {name: (name, _as(b, dtype)) for name, b in model.named_buffers(remove_duplicate=False)}
    return Objective(PureModel(model, chosen, {**aliases, **buffers}), rule, dtype)


def require_scalar(value: Any) -> Tensor:
    """The loss, refused unless it is one finite number that gradients flow through."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        came = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InvalidInputError(
            f"The loss of a batch is {came}; a scalar tensor is wanted. Reduce it in the loss, e.g. with "
            "reduction='mean' or .mean()."
        )
    if not bool(torch.isfinite(value.detach()).all()):
        raise InvalidInputError(
            f"The loss of a batch is {value.item()}: look for parameters, inputs or targets that are not finite, "
            "or for a logarithm or division by zero in the loss."
        )
    return value.reshape(())


def _working_dtype(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        raise InvalidInputError(f"dtype={dtype} cannot be differentiated in; use torch.float32 or torch.float64.")
    return torch.promote_types(dtype, torch.float32)


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
