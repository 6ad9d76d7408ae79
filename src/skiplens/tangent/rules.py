"""Rules: the gradient of one parameter, sample by sample, from one call's inputs and its outputs' gradients.

`rules_of` knows exact layer types only; every other parameter of a module is differentiated (`LocalGradient`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_map, tree_map_only, tree_structure

from skiplens.base.axes import Float, Int
from skiplens.graph.functional import call_with, tensors_in, transformable
from skiplens.graph.operations import Convolution, patches
from skiplens.tangent.calls import Call, PatternChanged
from skiplens.zoo.weight_laws import is_transposed

Cotangents = tuple[Tensor, ...]
"""Gradients with respect to the output tensors of one call: (batch, outputs, …), where the batch axis is the samples
or, where a model folds other axes into it, samples × pieces."""

Rows = Float[Tensor, "samples outputs params"]

Terms = Float[Tensor, "samples outputs terms channels"]


@dataclass(frozen=True)
class OuterShape:
    """Sizes of a gradient Σ_t left_t ⊗ right_t: the number of terms and the lengths of both sides."""

    terms: int
    left: int
    right: int


class Rule(ABC):
    """Abstract: how one parameter's gradient follows from a call; all samples and several outputs at once."""

    deferrable = False
    """Whether the gradient follows from the one input tensor and the cotangent, whenever it is asked for."""

    @abstractmethod
    def prepare(self, call: Call, samples: int) -> Any:
        """What the gradient needs of the call's inputs."""

    @abstractmethod
    def gradients(self, prepared: Any, cotangents: Cotangents, part: slice) -> Rows:
        """Each sample's and output's gradient of the parameter's rows `part` (its first axis), flattened."""

    def write(self, prepared: Any, cotangents: Cotangents, part: slice, out: Rows) -> None:
        """Put the gradients into `out`; a rule that can compute them in place saves a copy."""
        out.copy_(self.gradients(prepared, cotangents, part))

    def prepared_bytes(self, prepared: Any) -> int:
        """Memory that `prepared` takes beside the inputs; nothing where it only looks at them."""
        return 0

    def outer_shape(self, prepared: Any) -> OuterShape | None:
        """Sizes of the outer products the gradient is a sum of, or None where it is not of that form."""
        return None

    def left(self, prepared: Any) -> Tensor:
        """The side that all outputs share: (samples, terms, features), or (samples, terms) of integer names."""
        return prepared

    def right(self, prepared: Any, cotangents: Cotangents) -> Terms:
        """The side that comes from the output's gradient."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")


def _by_sample(cotangent: Tensor, samples: int) -> Float[Tensor, "samples outputs pieces *rest"]:
    """A cotangent (batch, outputs, …) with the pieces that a model folded into its batch axis behind the outputs."""
    if cotangent.shape[0] == samples:
        return cotangent.unsqueeze(2)
    return cotangent.unflatten(0, (samples, -1)).transpose(1, 2)


def _by_position(cotangent: Tensor, samples: int, channels: int) -> Terms:
    """A cotangent, whose channels are last, with all positions of a sample joined."""
    return _by_sample(cotangent, samples).reshape(samples, cotangent.shape[1], -1, channels)


@dataclass(frozen=True)
class LinearWeight(Rule):
    """The matrix of y = x Wᵀ, or of y = x W where `transposed`: Σ over positions of cotangent ⊗ input."""

    inputs: int
    outputs: int
    transposed: bool = False
    deferrable = True

    def prepare(self, call: Call, samples: int) -> Float[Tensor, "samples terms features"]:
        """Inputs by sample and position."""
        return call.input.reshape(samples, -1, self.inputs)

    def gradients(self, prepared: Tensor, cotangents: Cotangents, part: slice) -> Rows:
        """Each sample's and output's matrix of sums of outer products."""
        cotangent = self.right(prepared, cotangents)
        if self.transposed:
            return torch.einsum("sti,sotc->soic", prepared[..., part], cotangent).flatten(2)
        return torch.einsum("sotc,sti->soci", cotangent[..., part], prepared).flatten(2)

    def outer_shape(self, prepared: Tensor) -> OuterShape:
        """One term a position."""
        return OuterShape(prepared.shape[1], self.inputs, self.outputs)

    def right(self, prepared: Tensor, cotangents: Cotangents) -> Terms:
        """Cotangents by sample, output and position."""
        return _by_position(cotangents[0], prepared.shape[0], self.outputs)


@dataclass(frozen=True)
class ChannelSum(Rule):
    """What is added to each channel, or multiplies each channel of a normalised input: a sum over positions."""

    shape: tuple[int, ...]  # of the parameter, one number a channel (layer norm may have several axes)
    last: bool  # whether channels are the last axes, or the axis after the batch
    normalise: Callable[[Tensor], Tensor] | None = None  # the layer before channels are scaled; None for an offset

    def prepare(self, call: Call, samples: int) -> tuple[Tensor | None, int]:
        """The normalised input, where it matters, and the number of samples."""
        return None if self.normalise is None else self.normalise(call.input), samples

    def gradients(self, prepared: tuple[Tensor | None, int], cotangents: Cotangents, part: slice) -> Rows:
        """Sums over positions of the cotangent, or of cotangent times normalised input."""
        normalised, samples = prepared
        numbers = cotangents[0] if normalised is None else normalised.unsqueeze(1) * cotangents[0]
        if self.last:
            sums = _by_position(numbers, samples, math.prod(self.shape)).sum(2)
        else:
            pieces = _by_sample(numbers, samples)
            sums = pieces.reshape(*pieces.shape[:4], -1).sum((2, 4))
        return sums.unflatten(2, self.shape)[:, :, part].flatten(2)


@dataclass(frozen=True)
class EmbeddingTable(Rule):
    """The table of an embedding: row r gets the sum of the cotangents where r was looked up."""

    layer: nn.Embedding

    def prepare(self, call: Call, samples: int) -> Int[Tensor, "samples terms"]:
        """The rows looked up, by sample: two terms meet where they are equal. An index that all share is repeated."""
        names = call.input
        if names.shape[0] == 1:
            names = names.expand(samples, *names.shape[1:])
        return names.reshape(samples, -1)

    def gradients(self, prepared: Tensor, cotangents: Cotangents, part: slice) -> Rows:
        """Each sample's and output's table of summed cotangents, rows `part`."""
        start, stop, _ = part.indices(self.layer.num_embeddings)
        inside = (prepared >= start) & (prepared < stop)
        rows = torch.where(inside, prepared - start, 0)
        values = self.right(prepared, cotangents) * inside[:, None, :, None]
        table = values.new_zeros((*values.shape[:2], stop - start, self.layer.embedding_dim))
        return table.scatter_add_(2, rows[:, None, :, None].expand_as(values), values).flatten(2)

    def outer_shape(self, prepared: Tensor) -> OuterShape:
        """One term a look-up; comparing names costs nothing beside the products."""
        return OuterShape(prepared.shape[1], 1, self.layer.embedding_dim)

    def right(self, prepared: Tensor, cotangents: Cotangents) -> Terms:
        """Cotangents by look-up; the padding row never learns."""
        samples, terms = prepared.shape
        values = _by_sample(cotangents[0], samples)
        values = values.reshape(samples, values.shape[1], terms, self.layer.embedding_dim)
        padding = self.layer.padding_idx
        return values if padding is None else values * (prepared != padding)[:, None, :, None]


@dataclass(frozen=True)
class Patches:
    """Input patches (samples × pieces, groups, kernel entries, positions) and the number of samples."""

    tensor: Tensor
    samples: int


@dataclass(frozen=True)
class ConvolutionWeight(Rule):
    """The kernel of a convolution with any stride, padding, dilation and number of groups."""

    layer: Convolution
    deferrable = True

    def prepare(self, call: Call, samples: int) -> Patches:
        """The patches that each output position sees."""
        return Patches(patches(self.layer, call.input), samples)

    def gradients(self, prepared: Patches, cotangents: Cotangents, part: slice) -> Rows:
        """Cotangents times patches, summed over positions and over the pieces of each sample."""
        batch, groups, entries, positions = prepared.tensor.shape
        B = cotangents[0].reshape(batch, -1, groups, self.layer.out_channels // groups, positions)
        G = B @ prepared.tensor.transpose(2, 3).unsqueeze(1)
        G = G.reshape(batch, -1, self.layer.out_channels, entries)[:, :, part]
        return _by_sample(G, prepared.samples).sum(2).flatten(2)

    def write(self, prepared: Patches, cotangents: Cotangents, part: slice, out: Rows) -> None:
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

    def outer_shape(self, prepared: Patches) -> OuterShape | None:
        """One term a position, where there are no groups."""
        batch, groups, entries, positions = prepared.tensor.shape
        terms = batch // prepared.samples * positions
        return OuterShape(terms, entries, self.layer.out_channels) if groups == 1 else None

    def left(self, prepared: Patches) -> Tensor:
        """Patches by sample and position."""
        return prepared.tensor[:, 0].transpose(1, 2).reshape(prepared.samples, -1, prepared.tensor.shape[2])

    def right(self, prepared: Patches, cotangents: Cotangents) -> Terms:
        """Cotangents by sample, output and position."""
        B = _by_sample(cotangents[0].flatten(3), prepared.samples).transpose(3, 4)
        return B.reshape(prepared.samples, B.shape[1], -1, self.layer.out_channels)


@dataclass(frozen=True)
class LocalGradient(Rule):
    """Any parameter of any module that treats samples alike: `vmap` over samples of the module's own vjp."""

    name: str  # of the parameter inside the module
    value: Tensor
    axes: Any  # for each argument of the module 0 where it has a sample axis and None where samples share it
    output_count: int  # how many output tensors of the module carry a gradient

    def prepare(self, call: Call, samples: int) -> Callable[[Cotangents], Tensor]:
        """The map from cotangents to each sample's gradient."""
        arguments = tree_map_only(Tensor, Tensor.detach, (call.args, call.kwargs))
        if tree_structure(sample_axes(call, samples)) != tree_structure(self.axes):
            raise PatternChanged("a module was called with other arguments")

        def outputs_of_one(value: Tensor, arguments: Any) -> tuple[Tensor, ...]:
            args, kwargs = arguments
            output = call_with(call.module, {self.name: value}, args, kwargs, tied=True)
            return tuple(t for t in tensors_in(output) if t.is_floating_point())[: self.output_count]

        def gradients_of_one(arguments: Any, cotangents: Cotangents) -> Tensor:
            one = tree_map(lambda leaf, axis: leaf if axis is None else leaf.unsqueeze(0), arguments, self.axes)
            pull_back: Any = vjp(lambda value: outputs_of_one(value, one), self.value)[1]
            return vmap(pull_back)(tuple(cotangent.unsqueeze(1) for cotangent in cotangents))[0]

        return lambda cotangents: vmap(gradients_of_one, in_dims=(self.axes, 0))(arguments, cotangents)

    def gradients(self, prepared: Any, cotangents: Cotangents, part: slice) -> Rows:
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

    def axis(leaf: Any) -> int | None:
        return 0 if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == samples else None

    packed = nn.utils.rnn.PackedSequence  # its rows are those of all samples; it takes nothing but tensors
    return tree_map(axis, (call.args, call.kwargs), is_leaf=lambda value: isinstance(value, packed))


Rules = dict[str, Rule]


def rules_of(module: nn.Module) -> Rules:
    """Rules for the parameters that `module` itself owns; empty for a layer whose formula is not known here."""
    for kind, build in _BUILDERS.items():
        # A subclass may have a forward pass of its own.
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return build(module)
    if is_transposed(module):
        inputs, outputs = module.get_parameter("weight").shape
        return _linear(inputs, outputs, transposed=True)
    return {}


def _linear(inputs: int, outputs: int, transposed: bool = False) -> Rules:
    return {"weight": LinearWeight(inputs, outputs, transposed), "bias": ChannelSum((outputs,), last=True)}


def _convolution(layer: Convolution) -> Rules:
    return {"weight": ConvolutionWeight(layer), "bias": ChannelSum((layer.out_channels,), last=False)}


def _embedding(layer: nn.Embedding) -> Rules:
    return {} if layer.max_norm is not None or layer.scale_grad_by_freq else {"weight": EmbeddingTable(layer)}


def _norm(shape: tuple[int, ...], last: bool, normalise: Callable[[Tensor], Tensor]) -> Rules:
    """`normalise` is the layer without its scale and offset."""
    return {"weight": ChannelSum(shape, last, normalise), "bias": ChannelSum(shape, last)}


def _layer_norm(layer: nn.LayerNorm) -> Rules:
    shape = tuple(layer.normalized_shape)
    return _norm(shape, True, lambda x: F.layer_norm(x, shape, eps=layer.eps))


def _group_norm(layer: nn.GroupNorm) -> Rules:
    return _norm((layer.num_channels,), False, lambda x: F.group_norm(x, layer.num_groups, eps=layer.eps))


def _batch_norm(layer: nn.modules.batchnorm._BatchNorm) -> Rules:
    mean, variance = layer.running_mean, layer.running_var  # coupled samples never come here
    return _norm((layer.num_features,), False, lambda x: F.batch_norm(x, mean, variance, eps=layer.eps))


_BUILDERS: dict[type[nn.Module], Callable[[Any], Rules]] = {
    nn.Linear: lambda layer: _linear(layer.in_features, layer.out_features),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
}
