"""The residual structure itself: what every other lens stands on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from skiplens.base import NotExportableError, Progress, Randomness, silent
from skiplens.base.arguments import type_name
from skiplens.base.preserve_state import preserve_state
from skiplens.graph import Lens, ResidualNetwork, Subject
from skiplens.graph.dissect import CHOSEN_BLOCKS
from skiplens.graph.functional import main_output
from skiplens.graph.modules import ASSUMED, module_blocks
from skiplens.graph.network import leading_to_output
from skiplens.plots.figure import Bars, Figure, in_order, numbers
from skiplens.plots.section import KeyNumber, Quantity, ReadingView, Section
from skiplens.readings.finding import listed
from skiplens.readings.reading import Provenance, Reading

DECIDED = (
    "The forward pass decides something in Python by the values inside a tensor; what is told of blocks, paths and "
    "Jacobians holds for the way that these samples take."
)


class StructureReading(Reading, kind="structure"):
    """The residual structure of a network and a summary of its size.

    Entry i of each per-block field speaks of block i, in the order of execution.
    """

    model: str
    structure: str
    parameters: int
    trainable_parameters: int
    buffers: int
    dtype: str
    training: bool
    input_shapes: tuple[str, ...]
    output_shape: str
    operations: int
    block_names: tuple[str, ...]
    joins: tuple[str, ...]
    shortcuts: tuple[str, ...]
    branch_depths: Tensor
    branch_parameters: Tensor
    shortcut_parameters: Tensor
    parents: tuple[int | None, ...]
    dense_joins: tuple[str, ...]
    notes: tuple[str, ...] = ()
    in_branches: int | None = None
    """Parameters that some branch reads, each counted once; None in files from before it was counted."""
    block_shapes: tuple[str, ...] = ()
    """What each block takes and gives; empty without a graph and in files from before it was kept."""

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """One row a block, in words."""
        columns = {
            "block": self.block_names,
            "join": self.joins,
            "shortcut": self.shortcuts,
            "branch depth": self.branch_depths.tolist(),
            "branch parameters": self.branch_parameters.tolist(),
            "shortcut parameters": self.shortcut_parameters.tolist(),
        }
        return tuple(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


@dataclass(frozen=True)
class StructureLens(Lens):
    """Which residual blocks a network has, and how large it is."""

    name: ClassVar[str] = "structure"
    question: ClassVar[str] = "What is this network made of?"

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> StructureReading:
        """Find the blocks and count what they hold."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        progress("finding the residual blocks", 0, 1)
        try:
            network = subject.network
        except NotExportableError as error:
            return _hooked(subject, error, clock)
        progress("finding the residual blocks", 1, 1)
        return _reading(subject, network, clock.end())


def _of_model(subject: Subject, leaves: list[Any]) -> dict[str, Any]:
    """What needs no graph."""
    model = subject.model
    return {
        "model": subject.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "buffers": sum(b.numel() for b in model.buffers()),
        "dtype": ", ".join(sorted({type_name(p.dtype) for p in model.parameters()})) or "absent",
        "training": model.training,
        "input_shapes": tuple(_shape(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)),
    }


def _hooked(subject: Subject, reason: NotExportableError, clock: Any) -> StructureReading:
    """The modules that count as blocks where there is no graph."""
    model = subject.model
    with preserve_state(model), torch.no_grad():
        calls, returned = module_blocks(model, subject.batch.arguments(), CHOSEN_BLOCKS.get())
    own = [{id(p): p.numel() for p in call.module.parameters()} for call in calls]
    none = torch.zeros(len(calls), dtype=torch.int64)
    return StructureReading(
        **_of_model(subject, subject.batch.arguments().leaves()),
        structure="residual" if calls else "not known",
        output_shape=_shape(main_output(returned).shape),
        operations=0,
        block_names=tuple(call.name for call in calls),
        joins=tuple(call.name for call in calls),
        shortcuts=("assumed",) * len(calls),
        branch_depths=none,
        branch_parameters=torch.tensor([sum(sizes.values()) for sizes in own], dtype=torch.int64),
        shortcut_parameters=none,
        parents=(None,) * len(calls),
        dense_joins=(),
        notes=(*subject.notes, f"{reason} {ASSUMED}"),
        in_branches=sum({key: size for sizes in own for key, size in sizes.items()}.values()),
        provenance=clock.end(),
    )


def _reading(subject: Subject, network: ResidualNetwork, provenance: Provenance) -> StructureReading:
    model, blocks = subject.model, network.blocks

    def size(names: Iterable[str]) -> int:
        return sum(model.get_parameter(name).numel() for name in names)

    return StructureReading(
        **_of_model(subject, network.inputs.leaves()),
        structure=network.kind,
        output_shape=_shape(network.node(network.output).meta["val"].shape),
        operations=sum(node.op == "call_function" for node in network.graph.nodes),
        block_names=tuple(block.name for block in blocks),
        joins=tuple(block.join for block in blocks),
        shortcuts=tuple(block.shortcut.kind for block in blocks),
        branch_depths=torch.tensor([block.branch_depth for block in blocks], dtype=torch.int64),
        branch_parameters=torch.tensor([size(block.branch.parameters) for block in blocks], dtype=torch.int64),
        shortcut_parameters=torch.tensor([size(block.shortcut.parameters) for block in blocks], dtype=torch.int64),
        parents=tuple(block.parent for block in blocks),
        dense_joins=tuple(join.name for join in network.dense),
        notes=(*subject.notes, *_notes(model, network)),
        in_branches=size({name for block in blocks for name in block.branch.parameters}),
        block_shapes=tuple(" → ".join(dict.fromkeys(map(_shape, (b.input_shape, b.output_shape)))) for b in blocks),
        provenance=provenance,
    )


def _notes(model: nn.Module, network: ResidualNetwork) -> Iterator[str]:
    """What a person should know before reading on."""
    if not network.blocks and not network.dense:
        yield "There is no residual join, so what is told of blocks, branches and paths is empty; the rest applies."
    if network.exported.decided:
        yield DECIDED
    followed = {block.name for block in leading_to_output(network).blocks}
    if beside := tuple(block.name for block in network.blocks if block.name not in followed):
        yield f"The output that is judged is not computed from {listed(beside)}; paths are those through the rest."
    broken = tuple(name for name, parameter in model.named_parameters() if not bool(parameter.isfinite().all()))
    if broken:
        names = listed(broken, most=3)
        yield f"These parameters hold NaN or infinite values: {names}. No measurement of this model can be trusted."


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def parameters_by_block(reading: StructureReading) -> Figure | None:
    """How many parameters each block's branch holds, and its shortcut where it has any."""
    if not reading.block_names:
        return None
    names = reading.block_names
    bars = [Bars(names, numbers(reading.branch_parameters), "branch")]
    if bool((reading.shortcut_parameters > 0).any()):
        bars.append(Bars(names, numbers(reading.shortcut_parameters), "shortcut"))
    caption = f"Where the parameters of the {len(names)} residual blocks are, in the order in which the blocks run."
    words = ("parameters_by_block", "Parameters by block", caption, "residual block", "parameters")
    return Figure(*words, tuple(bars), block_places=in_order(names))


FIGURES = (parameters_by_block,)


def structure_section(reading: StructureReading) -> Section:
    """What the network is made of."""
    facts = (
        ("model", reading.model),
        ("structure", reading.structure),
        ("residual blocks", str(reading.parents.count(None))),
        ("blocks inside them", str(len(reading.parents) - reading.parents.count(None))),
        ("shortcuts", _counted(reading.shortcuts) or "none"),
        ("dense (concatenating) joins", str(len(reading.dense_joins))),
        ("parameters", f"{reading.parameters:,} ({reading.trainable_parameters:,} trainable)"),
        ("buffers", f"{reading.buffers:,} values"),
        ("parameters are", reading.dtype),
        ("mode", "training" if reading.training else "evaluation"),
        ("input", ", ".join(reading.input_shapes)),
        ("output", reading.output_shape),
        ("operations in the graph", f"{reading.operations:,}"),
    )
    told: dict[str, Any] = {"rows": reading.rows(), "notes": reading.notes, "blocks": reading.block_names}
    return Section.of(reading, "Structure", structure_sentence(reading), FIGURES, facts=facts, **told)


def structure_sentence(reading: StructureReading) -> str:
    """The structure in one sentence."""
    count = reading.parents.count(None)
    if count:
        sizes = zip(reading.branch_parameters.tolist(), reading.parents, strict=True)
        outermost = min(sum(size for size, parent in sizes if parent is None), reading.parameters)
        held = outermost if reading.in_branches is None else reading.in_branches
        share, inside = held / max(1, reading.parameters), len(reading.parents) - count
        return (
            f"{reading.model} has {count} residual block{'s' * (count > 1)}"
            f"{f' and {inside} inside them' * bool(inside)} ({_counted(reading.shortcuts)}); "
            f"their branches hold {100 * share:.0f} % of its {reading.parameters:,} parameters."
        )
    if reading.dense_joins:
        places = f"{len(reading.dense_joins)} place{'s' * (len(reading.dense_joins) > 1)}"
        return f"{reading.model} has no residual block; it joins by concatenation in {places}, as dense networks do."
    if not reading.operations:
        return f"Whether {reading.model} has residual blocks is not known: its graph cannot be read."
    return f"{reading.model} is a plain chain: no sum of a shortcut and a branch was found."


def _counted(words: tuple[str, ...]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def structure_numbers(reading: StructureReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return (
        KeyNumber("parameters", float(reading.parameters), exact=True),
        KeyNumber("residual blocks", float(len(reading.block_names)), exact=True),
        KeyNumber("projection shortcuts", _projections(reading), exact=True),
    )


def _projections(reading: StructureReading) -> float:
    return float(reading.shortcuts.count("projection"))


_QUANTITIES = {"projection_shortcuts": Quantity("shortcuts that are projections", lambda _, seen: _projections(seen))}
VIEW = ReadingView(
    StructureReading, StructureLens, structure_section, FIGURES, key_numbers=structure_numbers, quantities=_QUANTITIES
)
