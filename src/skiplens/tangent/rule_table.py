"""Which rule gives the gradient of which parameter: exact layer types only, everything else is differentiated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from skiplens.base.axes import Float
from skiplens.graph.functional import tensors_in, transformable
from skiplens.graph.operations import Convolution, patches
from skiplens.tangent.calls import Call, PatternChanged
from skiplens.tangent.rules import (
    Channels,
    Cotangents,
    EmbeddingTable,
    LinearWeight,
    Offset,
    OuterShape,
    Rule,
    Scale,
    by_sample,
)

Rules = dict[str, Rule]


def rules_of(module: nn.Module) -> Rules:
    """Rules for the parameters that `module` itself owns; empty for a layer whose formula is not known here."""
    for kind, build in _BUILDERS:
        # A subclass may have a forward pass of its own.
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return build(module)
    # GPT-2's `Conv1D`, a linear layer with its matrix transposed, is known by name so that nothing is imported.
    kind = type(module)
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        weight: Any = module.weight
        inputs, outputs = (Channels((count,), last=True) for count in weight.shape)
        return {"weight": LinearWeight(inputs, outputs, transposed=True), "bias": Offset(outputs)}
    return {}


def _linear(layer: nn.Linear) -> Rules:
    inputs, outputs = Channels((layer.in_features,), last=True), Channels((layer.out_features,), last=True)
    return {"weight": LinearWeight(inputs, outputs), "bias": Offset(outputs)}


def _convolution(layer: Convolution) -> Rules:
    return {"weight": ConvolutionWeight(layer), "bias": Offset(Channels((layer.out_channels,), last=False))}


def _embedding(layer: nn.Embedding) -> Rules:
    special = layer.max_norm is not None or layer.scale_grad_by_freq
    return {} if special else {"weight": EmbeddingTable(layer)}


def _norm(channels: Channels, normalise: Callable[[Tensor], Tensor]) -> Rules:
    """`normalise` is the layer without its scale and offset; batch norm is here one with running statistics."""
    return {"weight": Scale(channels, normalise), "bias": Offset(channels)}


def _layer_norm(layer: nn.LayerNorm) -> Rules:
    channels = Channels(tuple(layer.normalized_shape), last=True)
    return _norm(channels, lambda x: F.layer_norm(x, layer.normalized_shape, eps=layer.eps))


def _group_norm(layer: nn.GroupNorm) -> Rules:
    channels = Channels((layer.num_channels,), last=False)
    return _norm(channels, lambda x: F.group_norm(x, layer.num_groups, eps=layer.eps))


def _batch_norm(layer: nn.modules.batchnorm._BatchNorm) -> Rules:
    channels = Channels((layer.num_features,), last=False)
    return _norm(channels, lambda x: F.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps))


_BUILDERS: tuple[tuple[type[nn.Module], Callable[[Any], Rules]], ...] = (
    (nn.Linear, _linear),
    (nn.Conv1d, _convolution),
    (nn.Conv2d, _convolution),
    (nn.Conv3d, _convolution),
    (nn.Embedding, _embedding),
    (nn.LayerNorm, _layer_norm),
    (nn.GroupNorm, _group_norm),
    (nn.BatchNorm1d, _batch_norm),
    (nn.BatchNorm2d, _batch_norm),
    (nn.BatchNorm3d, _batch_norm),
)


@dataclass(frozen=True)
class Patches:
    """Input patches (samples × pieces, groups, kernel entries, positions) and the number of samples."""

    tensor: Tensor
    samples: int


@dataclass(frozen=True)
class ConvolutionWeight(Rule):
    """The kernel of a convolution with any stride, padding, dilation and number of groups."""

    layer: Convolution

    def prepare(self, call: Call, samples: int) -> Patches:
        """The patches that each output position sees."""
        return Patches(patches(self.layer, call.input), samples)

    def gradients(
        self, prepared: Patches, cotangents: Cotangents, part: slice
    ) -> Float[Tensor, "samples outputs params"]:
        """Cotangents times patches, summed over positions and over the pieces of each sample."""
        batch, groups, entries, positions = prepared.tensor.shape
        B = cotangents[0].reshape(batch, -1, groups, self.layer.out_channels // groups, positions)
        G = B @ prepared.tensor.transpose(2, 3).unsqueeze(1)
        G = G.reshape(batch, -1, self.layer.out_channels, entries)[:, :, part]
        return by_sample(G, prepared.samples).sum(2).flatten(2)

    def write(
        self, prepared: Patches, cotangents: Cotangents, part: slice, out: Float[Tensor, "samples outputs params"]
    ) -> None:
        """One matrix product a sample, all outputs together, straight into its place."""
        batch, groups, entries, positions = prepared.tensor.shape
        if groups > 1 or batch != prepared.samples or out.dtype != prepared.tensor.dtype:
            super().write(prepared, cotangents, part, out)
            return
        B = cotangents[0].flatten(3)[:, :, part].reshape(batch, -1, positions)
        torch.bmm(B, prepared.tensor[:, 0].transpose(1, 2), out=out.view(batch, -1, entries))

    def prepared_bytes(self, prepared: Patches) -> int:
        """A copy of the input for each entry of the kernel."""
        return prepared.tensor.nbytes

    @property
    def deferrable(self) -> bool:
        """The input and the cotangent suffice."""
        return True

    def outer_shape(self, prepared: Patches) -> OuterShape | None:
        """One term a position, where there are no groups."""
        batch, groups, entries, positions = prepared.tensor.shape
        terms = batch // prepared.samples * positions
        return OuterShape(terms, entries, self.layer.out_channels) if groups == 1 else None

    def left(self, prepared: Patches) -> Tensor:
        """Patches by sample and position."""
        return prepared.tensor[:, 0].transpose(1, 2).reshape(prepared.samples, -1, prepared.tensor.shape[2])

    def right(self, prepared: Patches, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """Cotangents by sample, output and position."""
        B = by_sample(cotangents[0].flatten(3), prepared.samples).transpose(3, 4)
        return B.reshape(prepared.samples, B.shape[1], -1, self.layer.out_channels)


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

    def axis(tensor: Tensor) -> int | None:
        return 0 if tensor.ndim and tensor.shape[0] == samples else None

    return _map((call.args, call.kwargs), axis, other=None)


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
