"""The residual structure itself: what every other lens stands on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import Provenance, StructureReading
from skiplens.residual import ResidualNetwork


@dataclass(frozen=True)
class StructureLens(Lens):
    """Which residual blocks a network has, and how large it is."""

    name: ClassVar[str] = "structure"
    question: ClassVar[str] = "What is this network made of?"

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> StructureReading:
        """Find the blocks and count what they hold."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        progress("finding the residual blocks", 0, 1)
        network = subject.network
        progress("finding the residual blocks", 1, 1)
        return _reading(subject, network, clock.end())


def _reading(subject: Subject, network: ResidualNetwork, provenance: Provenance) -> StructureReading:
    model, blocks = subject.model, network.blocks
    return StructureReading(
        model=subject.name,
        structure=network.kind,
        parameters=sum(p.numel() for p in model.parameters()),
        trainable_parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        buffers=sum(b.numel() for b in model.buffers()),
        dtype=_dtypes(model),
        training=model.training,
        input_shapes=tuple(_shape(leaf.shape) for leaf in network.inputs.leaves() if isinstance(leaf, torch.Tensor)),
        output_shape=_shape(network.node(network.output).meta["val"].shape),
        operations=sum(node.op == "call_function" for node in network.graph.nodes),
        block_names=tuple(block.name for block in blocks),
        joins=tuple(block.join for block in blocks),
        shortcuts=tuple(block.shortcut.kind for block in blocks),
        branch_depths=_counts(block.branch_depth for block in blocks),
        branch_parameters=_counts(_size(model, block.branch.parameters) for block in blocks),
        shortcut_parameters=_counts(_size(model, block.shortcut.parameters) for block in blocks),
        parents=tuple(block.parent for block in blocks),
        dense_joins=tuple(join.name for join in network.dense),
        notes=(*subject.notes, *_notes(subject, network)),
        provenance=provenance,
    )


def _notes(subject: Subject, network: ResidualNetwork) -> tuple[str, ...]:
    """What a person should know before reading on."""
    if network.blocks or network.dense:
        return _broken(subject.model)
    without = "There is no residual join, so what is told of blocks, branches and paths is empty; the rest applies."
    return (without, *_broken(subject.model))


def _broken(model: nn.Module) -> tuple[str, ...]:
    broken = [name for name, parameter in model.named_parameters() if not bool(parameter.isfinite().all())]
    if not broken:
        return ()
    shown = ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
    return (f"These parameters hold NaN or infinite values: {shown}. No measurement of this model can be trusted.",)


def _dtypes(model: nn.Module) -> str:
    names = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    return ", ".join(names) or "absent"


def _shape(shape: torch.Size) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def _counts(numbers: Iterable[int]) -> torch.Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64)


def _size(model: nn.Module, names: tuple[str, ...]) -> int:
    return sum(model.get_parameter(name).numel() for name in names)
