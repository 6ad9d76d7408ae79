"""Take a model apart: from a module and its inputs to its residual blocks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from skiplens.core.arguments import Arguments
from skiplens.core.errors import NotExportableError
from skiplens.core.untouched import untouched
from skiplens.residual.assemble import dense_joins, residual_blocks
from skiplens.residual.block import ResidualBlock
from skiplens.residual.concatenations import find_dense_joins
from skiplens.residual.export import ExportedGraph, export
from skiplens.residual.flow import DataFlow
from skiplens.residual.joins import find_joins
from skiplens.residual.network import ResidualNetwork
from skiplens.residual.trial import require_data, require_module, try_call


def find_residual_blocks(model: nn.Module, inputs: Any) -> list[ResidualBlock]:
    """The residual blocks of `model` in execution order, one for each residual join; empty if it has none.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is to be seen; it is not changed.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
    """
    return dissect(model, inputs).blocks


def dissect(model: nn.Module, inputs: Any) -> ResidualNetwork:
    """The model with its functional graph, its residual blocks and its dense joins.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is to be seen; it is not changed.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
    """
    model, arguments = require_module(model), Arguments.of(inputs)
    require_data(model, arguments)
    exported = _export_untouched(model, arguments)
    flow = DataFlow(exported)
    blocks = residual_blocks(flow, find_joins(flow))
    return ResidualNetwork(model, arguments, exported, blocks, dense_joins(flow, find_dense_joins(flow)))


def _export_untouched(model: nn.Module, arguments: Arguments) -> ExportedGraph:
    """The graph of the model; inputs that the model refuses are told from a model that torch.export refuses."""
    copies = Arguments(*tree_map_only(torch.Tensor, torch.clone, (arguments.positional, arguments.named)))
    with untouched(model), _attributes_kept(model), torch.no_grad():
        try:
            exported = export(model, copies)
        except NotExportableError:
            try_call(model, copies)
            raise
        try_call(model, copies)
    return exported


@contextmanager
def _attributes_kept(model: nn.Module) -> Iterator[None]:
    """Put back what a forward pass stores on its modules: during an export these are tensors without data."""
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
