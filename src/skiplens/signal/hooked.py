"""Structure and signal of a model whose graph cannot be read, seen by hooks on the modules that count as its blocks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.arguments import type_name
from skiplens.base.errors import NotExportableError
from skiplens.base.preserve_state import preserve_state
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import CHOSEN_BLOCKS
from skiplens.graph.functional import main_output
from skiplens.graph.lens import Subject
from skiplens.graph.modules import ASSUMED, ModuleCall, module_blocks
from skiplens.signal.gradients import cosine, sample_norms, size
from skiplens.signal.units import broken_tensors, fresh_norms, repeat_difference


def hooked_signal(subject: Subject, reason: NotExportableError, randomness: Randomness) -> dict[str, Any]:
    """The fields of a `SignalReading`: one pass forwards and one back, as along the joins of a graph."""
    model, samples, arguments = subject.model, subject.batch.samples, subject.batch.arguments()
    with preserve_state(model), torch.enable_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        calls, returned = module_blocks(model, arguments, CHOSEN_BLOCKS.get())
        output = main_output(returned)
        depths = [calls[0].entered, *(call.left for call in calls)] if calls else []
        direction = torch.randn(output.shape, generator=randomness.torch(), dtype=torch.float64).to(output)
        scalar = (output * direction).sum() * (samples / output.numel()) ** 0.5
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        flowing = [value for value in depths if value.requires_grad]
        found = torch.autograd.grad(scalar, [*flowing, *named.values()], allow_unused=True)
        by_depth = dict(zip(map(id, flowing), found, strict=False))
        by_name = dict(zip(named, found[len(flowing) :], strict=True))
    blocks = [_branch(call, model, by_name) for call in calls]
    per_block: dict[str, Any] = {key: torch.tensor([b[key] for b in blocks], dtype=torch.float64) for key in _NUMBERS}
    per_block |= {key: torch.full((len(calls),), torch.nan, dtype=torch.float64) for key in _UNKNOWN}
    per_block |= {key: torch.zeros(len(calls), dtype=torch.int64) for key in _NOT_COUNTED}
    per_block |= {key: tuple(b[key] for b in blocks) for key in ("matrices", "shifts", "normalised")}
    rows = [sample_norms(v, samples) * (samples / v.numel()) ** 0.5 for v in depths]
    back = [sample_norms(by_depth.get(id(v)), samples) for v in depths]
    nothing = torch.zeros(0, samples, dtype=torch.float64)
    return {
        **per_block,
        "samples": samples,
        "precision": type_name(output.dtype),
        "block_names": tuple(call.name for call in calls),
        "outermost": (True,) * len(calls),
        "signal": torch.stack(rows) if rows else nothing,
        "gradient": torch.stack(back) if back else nothing,
        "widths": torch.tensor([_width(call.left) for call in calls], dtype=torch.int64),
        "scales": ((),) * len(calls),
        "output_parameters": ((),) * len(calls),
        "dropout": tuple(name for name, m in model.named_modules() if _drops(m)),
        "fresh_norms": fresh_norms(model),
        "repeat_difference": repeat_difference(model, arguments),
        "training": model.training,
        "broken": broken_tensors(model, arguments),
        "notes": (f"{reason} {ASSUMED}",),
    }


_NUMBERS = ("branch_norms", "shortcut_norms", "alignments", "branch_gradients", "weight_norms")
_UNKNOWN = ("norm_scales", "dead_units", "saturated_units")
_NOT_COUNTED = ("dead_widths", "zero_factors", "branch_depths")  # what a graph would tell


def _branch(call: ModuleCall, model: nn.Module, gradients: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """What one block adds to its input, on the assumption that it adds something, and what its parameters show."""
    brought, shortcut = call.left.detach() - call.entered.detach(), call.entered
    own = {id(parameter) for parameter in call.module.parameters()}
    named = {name: p for name, p in model.named_parameters() if id(p) in own}
    matrices = tuple(name for name, p in named.items() if p.ndim > 1)
    squares = [float(named[name].detach().double().square().sum()) for name in matrices]
    found = [float(g.double().square().sum()) for name in named if (g := gradients.get(name)) is not None]
    return {
        "branch_norms": size(brought),
        "shortcut_norms": size(shortcut),
        "alignments": cosine(brought, shortcut),
        "branch_gradients": sum(found) ** 0.5,
        "weight_norms": (sum(squares) / len(squares)) ** 0.5 if squares else torch.nan,
        "matrices": matrices,
        "shifts": tuple(name for name in named if name not in matrices),
        "normalised": any("Norm" in type(module).__name__ for module in call.module.modules()),
    }


def _width(value: Tensor) -> int:
    return value.shape[1] if value.ndim == 4 else value.shape[-1]


def _drops(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
