"""Gradients of a parameter inside any module, by differentiating that one module sample by sample."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.func import functional_call, vjp, vmap

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.functional import transformable
from skiplens.derivatives.outputs import tensors_in
from skiplens.derivatives.tangent.calls import Call, PatternChanged
from skiplens.derivatives.tangent.rules.rule import Cotangents, Rule


@dataclass(frozen=True)
class LocalGradient(Rule):
    """Any parameter of any module that treats samples alike: `vmap` over samples of the module's own vjp.

    Attributes:
        name: The parameter's name inside the module.
        value: The parameter.
        axes: For each argument of the module 0 where it has a sample axis and None where samples share it.
        output_count: How many output tensors of the module carry a gradient.
    """

    name: str
    value: Tensor
    axes: Any
    output_count: int

    def prepare(self, call: Call, samples: int) -> Callable[[Cotangents], Tensor]:
        """The map from cotangents to each sample's gradient."""
        arguments = _map((call.args, call.kwargs), lambda tensor: tensor.detach())
        if _nesting(sample_axes(call, samples)) != _nesting(self.axes):
            raise PatternChanged("a module was called with other arguments")

        def outputs_of_one(value: Tensor, arguments: Any) -> tuple[Tensor, ...]:
            args, kwargs = arguments
            output = functional_call(call.module, {self.name: value}, args, kwargs)
            return tuple(t for t in tensors_in(output) if t.is_floating_point())[: self.output_count]

        def gradients_of_one(arguments: Any, cotangents: Cotangents) -> Tensor:
            one = _map_with(arguments, self.axes, lambda tensor: tensor.unsqueeze(0))
            pull_back: Any = vjp(lambda value: outputs_of_one(value, one), self.value)[1]
            return vmap(pull_back)(tuple(cotangent.unsqueeze(1) for cotangent in cotangents))[0]

        return lambda cotangents: vmap(gradients_of_one, in_dims=(self.axes, 0))(arguments, cotangents)

    def gradients(self, prepared: Any, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Each sample's and output's gradient of the rows `part`."""
        if len(cotangents) != self.output_count:
            raise PatternChanged("a module returned another number of tensors")
        try:
            with transformable():
                gradients = prepared(cotangents)
        except ValueError as error:  # vmap's word for arguments that disagree on the number of samples
            raise PatternChanged(f"a module was called with other shapes: {error}") from error
        return gradients.unsqueeze(2) if self.value.ndim == 0 else gradients[:, :, part].flatten(2)


def sample_axes(call: Call, samples: int) -> Any:
    """The arguments of `call` with 0 in place of each tensor that has a sample axis and None elsewhere."""
    return _map((call.args, call.kwargs), lambda tensor: _sample_axis(tensor, samples), other=None)


def _sample_axis(tensor: Tensor, samples: int) -> int | None:
    return 0 if tensor.ndim and tensor.shape[0] == samples else None


def _nesting(axes: Any) -> Any:
    """How arguments are nested, without the axes themselves."""
    if isinstance(axes, dict):
        return {key: _nesting(entry) for key, entry in axes.items()}
    return tuple(_nesting(entry) for entry in axes) if isinstance(axes, tuple | list) else None


def _map(value: Any, change: Callable[[Tensor], Any], other: Any = ...) -> Any:
    """`value` with each tensor changed; what is no tensor stays, or becomes `other`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map(entry, change, other) for key, entry in value.items()}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(_map(entry, change, other) for entry in value)
    return value if other is ... else other


def _map_with(value: Any, axes: Any, change: Callable[[Tensor], Any]) -> Any:
    """`value` with those tensors changed that have an axis in `axes`."""
    if isinstance(value, dict):
        return {key: _map_with(entry, axes[key], change) for key, entry in value.items()}
    if isinstance(axes, tuple | list):
        return type(value)(_map_with(entry, axis, change) for entry, axis in zip(value, axes, strict=True))
    return value if axes is None else change(value)
