"""Which rule gives the gradient of which parameter: exact layer types only, everything else is differentiated."""

from collections.abc import Callable
from typing import Any

from torch import nn

from skiplens.derivatives.tangent.rules.channels import Channels
from skiplens.derivatives.tangent.rules.convolution import Convolution, ConvolutionWeight
from skiplens.derivatives.tangent.rules.embedding import EmbeddingTable
from skiplens.derivatives.tangent.rules.linear import LinearWeight, Offset
from skiplens.derivatives.tangent.rules.normalisation import (
    Scale,
    batch_normaliser,
    group_normaliser,
    layer_normaliser,
)
from skiplens.derivatives.tangent.rules.rule import Rule as Rule

Rules = dict[str, Rule]


def rules_of(module: nn.Module) -> Rules:
    """Rules for the parameters that `module` itself owns; empty for a layer whose formula is not known here."""
    for kind, build in _BUILDERS:
        # A subclass may have a forward pass of its own.
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return build(module)
    return _transposed_linear(module) if _is_matrix_of_transformers(module) else {}


def _linear(layer: nn.Linear) -> Rules:
    inputs, outputs = Channels((layer.in_features,), last=True), Channels((layer.out_features,), last=True)
    return {"weight": LinearWeight(inputs, outputs), "bias": Offset(outputs)}


def _transposed_linear(layer: Any) -> Rules:
    inputs, outputs = (Channels((count,), last=True) for count in layer.weight.shape)
    return {"weight": LinearWeight(inputs, outputs, transposed=True), "bias": Offset(outputs)}


def _convolution(layer: Convolution) -> Rules:
    return {"weight": ConvolutionWeight(layer), "bias": Offset(Channels((layer.out_channels,), last=False))}


def _embedding(layer: nn.Embedding) -> Rules:
    special = layer.max_norm is not None or layer.scale_grad_by_freq
    return {} if special else {"weight": EmbeddingTable(layer)}


def _layer_norm(layer: nn.LayerNorm) -> Rules:
    channels = Channels(tuple(layer.normalized_shape), last=True)
    return {"weight": Scale(channels, layer_normaliser(layer)), "bias": Offset(channels)}


def _group_norm(layer: nn.GroupNorm) -> Rules:
    channels = Channels((layer.num_channels,), last=False)
    return {"weight": Scale(channels, group_normaliser(layer)), "bias": Offset(channels)}


def _batch_norm(layer: nn.modules.batchnorm._BatchNorm) -> Rules:
    channels = Channels((layer.num_features,), last=False)
    return {"weight": Scale(channels, batch_normaliser(layer)), "bias": Offset(channels)}


def _is_matrix_of_transformers(module: nn.Module) -> bool:
    """GPT-2's `Conv1D`: a linear layer with its matrix transposed; known by name so that nothing is imported."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


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
