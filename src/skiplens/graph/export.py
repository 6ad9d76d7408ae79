"""The functional graph of a model, taken with `torch.export` without touching the model."""

import contextlib
import io
import logging
import re
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from skiplens.base.arguments import Arguments
from skiplens.base.errors import NotExportableError
from skiplens.base.identity import architecture
from skiplens.base.preserve_state import SelfChangeError
from skiplens.graph.inputs import first_line, named_tensors
from skiplens.graph.rewriting import rewritten


@dataclass(frozen=True, eq=False)
class ExportedGraph:
    """A model as a list of functional operations; parameters and buffers are named, not stored."""

    graph: fx.Graph  # the operations in execution order; nothing in it happens in place
    parameters: dict[str, str]  # full name of the parameter that each such placeholder stands for
    buffers: dict[str, str]  # full name of the buffer that each such placeholder stands for
    constants: dict[str, Any]  # tensors that the forward pass makes out of nothing
    inputs: tuple[str, ...]  # the placeholders that take the model's inputs, in the order of `Arguments.leaves`
    outputs: dict[str, str]  # the node of each output tensor by the output's name, such as ``logits``
    functions: tuple[str, ...] = ()  # of the user's with a backward pass of their own, which is not in the graph
    decided: tuple[str, ...] = ()  # where Python decided something by the values of these inputs; the graph repeats it


WALL = {"memory_format": torch.preserve_format}  # which nobody asks for, since a copy has it anyway


def is_wall(node: fx.Node) -> bool:
    """Whether training lets no gradient through an operation: at the end of a ``no_grad``, or a ``detach``."""
    copied = node.target is torch.ops.aten.clone.default and node.kwargs == WALL
    return copied or (node.target is torch.ops.aten.detach.default and node.meta["val"].is_floating_point())


_KNOWN: dict[str | None, ExportedGraph] = {}  # of models that are built alike, such as the draws of a comparison
_MOST_KNOWN = 8


def export(model: nn.Module, arguments: Arguments) -> ExportedGraph:
    """The functional graph of `model` in the mode it is in, or an error that says why there is none."""
    if isinstance(model, torch.jit.ScriptModule):
        raise NotExportableError(
            f"{type(model).__name__} is compiled TorchScript, which torch.export cannot trace. "
            "Hand in the nn.Module that it was compiled from."
        )
    key = architecture(model, arguments.positional, arguments.named)
    if key in _KNOWN:
        return _KNOWN[key]
    decided: tuple[str, ...] = ()
    try:
        try:
            program, graph, names, functions = _traced(model, arguments, torch.enable_grad)
        except Exception as error:
            if _DATA_DEPENDENT.search(f"{type(error).__name__}: {error}"):
                (program, graph, names, functions), decided = _decided(model, arguments, error)
            else:  # it is not made to be trained, and may be looked at all the same
                program, graph, names, functions = _traced(model, arguments, torch.no_grad)
    except Exception as error:
        raise NotExportableError(explain(model, error)) from error
    changed = [
        _without_door(spec.target or "")
        for spec in program.graph_signature.output_specs
        if spec.kind.name == "PARAMETER_MUTATION"  # torch before 2.9 has no such kind
    ]
    if changed:
        raise SelfChangeError(", ".join(changed[:5]))
    found = replace(_read(model, program, graph, names), functions=tuple(functions), decided=decided)
    if key is not None and not found.constants and not decided:
        _KNOWN[key] = found
        if len(_KNOWN) > _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
    return found


def _traced(
    model: nn.Module, arguments: Arguments, mode: Callable[[], Any], reads: Mapping[Any, Sequence[Any]] | None = None
) -> tuple[ExportedProgram, fx.Graph, Any, Any]:
    """The program, its graph, the names of its outputs and the functions that have a backward pass of their own.

    With gradients switched on it is known where the model itself switches them off. `reads` are numbers that Python
    reads from tensors on the way, of which there are none in a trace.
    """
    names, functions = list[str](), dict[str, None]()
    door = _FlatOutputs(model, names.extend, reads)
    unchecked = mock.patch.object(torch.distributions.Distribution, "_validate_args", False)  # it reads the values
    with mode(), _quiet(), _noted(functions), unchecked:
        program = torch.export.export(door, arguments.positional, arguments.named, strict=False)
        _unfold(program.graph_module)
        graph = rewritten(program, _decompositions())
        if graph is None:
            program = program.run_decompositions(_decompositions())  # this makes it functional too
    return program, graph or program.graph, names, functions


def _decided(model: nn.Module, arguments: Arguments, error: Exception) -> tuple[Any, tuple[str, ...]]:
    """What `_traced` gives where Python goes the way of these inputs, and the lines that decide; or the `error`."""
    try:
        with torch.no_grad(), _Reads() as reads:
            arguments.call(model)
        lines = tuple(f"{file}:{line}" for _, file, line in reads.noted)
        return _traced(model, arguments, torch.enable_grad, reads.noted), lines
    except Exception:
        raise error from None


class _Reads(TorchFunctionMode):
    """Notes what Python reads from tensors, and places by values, for each line that reads; or gives it what was noted.

    A trace may skip lines that only check or warn.
    """

    def __init__(self, noted: Mapping[Any, Sequence[Any]] | None = None) -> None:
        super().__init__()
        self.noted = defaultdict[Any, list[Any]](list)
        self.given = {line: iter(values) for line, values in noted.items()} if noted else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MASKING:
            args = args[0], self._places(args[1]), *args[2:]
        if func not in READING | PLACING and not (func is torch.where and len(args) == 1):
            return func(*args, **(kwargs or {}))
        frames = (frame for frame, _ in traceback.walk_stack(None))
        reader = next(frame for frame in frames if _is_of_a_model(frame.f_code.co_filename))
        line = reader.f_code.co_filename, reader.f_lineno
        if self.given is not None:  # no such line, or no more of it: the trace goes another way and is given up
            value = next(self.given[func, *line])
            return tree_map_only(torch.Tensor, lambda t: t.new_tensor(t.tolist()).reshape(t.shape), value)
        self.noted[func, *line].append(func(*args, **(kwargs or {})))
        if func is torch.Tensor.tolist:  # which a trace reads one by one
            self.noted[torch.Tensor.item, *line] += args[0].flatten().tolist()
        return self.noted[func, *line][-1]

    def _places(self, index: Any) -> Any:
        """The index with the places where masks are true instead of these, whose number a trace does not know."""
        found: list[Any] = []
        for part in index if isinstance(index, tuple) else (index,):
            is_mask = isinstance(part, torch.Tensor) and part.dtype == torch.bool
            asked = torch.Tensor.nonzero, (), (part,), {"as_tuple": True}
            found += self.__torch_function__(*asked) if is_mask else [part]
        return tuple(found)


def _is_of_a_model(file: str) -> bool:
    """Whether code is that of a module, perhaps one of torch, and not what runs or traces it."""
    return not file.startswith((_TORCH_FOLDER, __file__, "<")) or file.startswith(str(Path(nn.__file__).parent))


READING = {torch.equal, torch.allclose, torch.is_nonzero, torch.Tensor.item, torch.Tensor.tolist}
READING |= {getattr(torch.Tensor, f"__{name}__") for name in ("bool", "int", "float", "index", "contains")}
PLACING = {getattr(of, name) for of in (torch, torch.Tensor) for name in ("nonzero", "argwhere", "bincount")}
MASKING = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Operations without all derivatives, written with operations that have them; everything else stays as it is."""
    table: dict[Any, Callable[..., Any]] = {  # what a tensor holds after a write in place
        torch.ops.aten.copy.default: lambda into, source, *_: source.to(into.dtype).expand(into.shape).clone(),
        torch.ops.aten.glu.default: lambda both, axis=-1: gated(*both.chunk(2, axis)),
        torch.ops.aten.slice_scatter.default: written_into,
    }
    grouped = (("aten", "_grouped_mm"), ("transformers", "grouped_mm_fallback"))  # its experts use the second one
    found = (getattr(getattr(torch.ops, space), name, None) for space, name in grouped)
    return table | {operation.default: grouped_product for operation in found if operation is not None}


def gated(values: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """What a gated linear unit makes of its two halves; its own operation has no rule for vmap over forward mode."""
    return values * gates.sigmoid()


def written_into(into: torch.Tensor, part: torch.Tensor, axis: int = 0, *place: Any) -> Any:
    """Complex numbers with some of them overwritten; torch's own operation has no derivative for these."""
    start, end, _ = slice(*place).indices(into.shape[axis])
    if not into.is_complex() or part.shape[axis] != end - start:
        return NotImplemented
    return torch.cat([into.narrow(axis, 0, start), part, into.narrow(axis, end, into.shape[axis] - end)], axis)


def grouped_product(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor | None = None, *others: Any) -> Any:
    """Each group of rows times its own matrix; group g ends before row ``ends[g]``."""
    if ends is None or (rows.ndim, matrices.ndim) != (2, 3) or any(other is not None for other in others):
        return NotImplemented
    places = torch.arange(len(rows), device=rows.device)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    chosen = (places >= starts[:, None]) & (places < ends[:, None])
    return torch.bmm(chosen[:, :, None] * rows, matrices).sum(0)


class _FlatOutputs(nn.Module):
    """The model with its outputs as a plain tuple, so that no class of its own has to be known to torch.export."""

    def __init__(self, model: nn.Module, report_names: Callable[[Iterable[str]], None], reads: Any) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self.reads = reads
        self.report_names = report_names  # a function, because torch.export puts back a list that forward changes

    def forward(self, *arguments: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        with _Reads(self.reads) if self.reads else contextlib.nullcontext():  # anew in each of several traces
            outputs = dict(named_tensors(self.model(*arguments, **named)))
        self.report_names(outputs)
        return tuple(outputs.values())


@contextlib.contextmanager
def _noted(found: dict[str, None]) -> Iterator[None]:
    """Note the functions with a backward pass of their own that run in a block."""
    usual = vars(torch.autograd.Function)["apply"].__func__

    def apply(kind: type, *arguments: Any, **named: Any) -> Any:
        found.update({} if kind.__module__.startswith("torch.") else {kind.__name__: None})
        return usual(kind, *arguments, **named)

    with mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)):
        yield


def _unfold(module: Any) -> None:
    """Put what ran with gradients switched on or off back into a module's graph, from graphs of their own.

    What comes out of a ``no_grad`` is a copy, which changes neither its value nor a derivative: a `wall`.
    """
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.wrap_with_set_grad_enabled):
        enabled, part, *given = node.args
        inner = module.get_submodule(part.target)
        _unfold(inner)
        with module.graph.inserting_before(node):
            places = dict(zip(inner.graph.find_nodes(op="placeholder"), given, strict=True))
            values = module.graph.graph_copy(inner.graph, places)
            for user in list(node.users):
                value = values[user.args[1]]
                if not enabled and value.meta["val"].is_floating_point():
                    inside, value = value, module.graph.call_function(torch.ops.aten.clone.default, (value,), WALL)
                    value.meta = dict(inside.meta)
                user.replace_all_uses_with(value)
                module.graph.erase_node(user)
        module.graph.erase_node(node)
        if not part.users:
            module.graph.erase_node(part)
    module.recompile()


def module_calls(node: fx.Node) -> tuple[str, ...]:
    """The calls of modules that were running at `node`, from the model itself (named '') inwards.

    A module that is called again has the number of the call behind its name, such as ``layer@1``; `module_of` takes it
    off.
    """
    found = []
    for key, (path, _) in node.meta.get("nn_module_stack", {}).items():
        if path:
            mark = re.search(r"@\d+$", key)  # torch.export puts it behind the key of a repeated call
            found.append(_without_door(module_of(path)) + (mark.group() if mark else ""))
    return tuple(found)


def module_of(call: str) -> str:
    """The module that a call runs."""
    return re.sub(r"@\d+", "", call)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch.export prints and logs; a failure carries it in its exception anyway."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "torch"]
    loud = [logger for logger in map(logging.getLogger, names) if not logger.disabled]
    for logger in loud:
        logger.disabled = True
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger in loud:
            logger.disabled = False


def _read(model: nn.Module, program: ExportedProgram, graph: fx.Graph, output_names: list[str]) -> ExportedGraph:
    signature = program.graph_signature
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}  # of tied weights, the first
    parameters = {
        placeholder: first_names[id(model.get_parameter(_without_door(target)))]
        for placeholder, target in signature.inputs_to_parameters.items()
    }
    _join_places(graph, parameters)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.slice_scatter.default):
        axis, start, end = (*node.args[2:], *(0, None, None)[len(node.args) - 2 :])[:3]
        size = node.args[0].meta["val"].shape[axis]  # torch writes 2⁶³ − 1 for the end, and vmap adds one to it
        node.args = (*node.args[:2], axis, start, size if end is None else min(end, size), *node.args[5:])
    buffers = {spec.arg.name: spec.target for spec in signature.input_specs if spec.kind is InputKind.BUFFER}
    made = (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ)
    constants = {spec.arg.name: spec.target or "" for spec in signature.input_specs if spec.kind in made}
    returned: Any = graph.output_node().args[0]  # new values of buffers, then what the model returns
    outputs = [node.name for node in returned[len(returned) - len(output_names) :]]
    return ExportedGraph(
        graph=graph,
        parameters=parameters,
        buffers={name: _without_door(target or "") for name, target in buffers.items()},
        constants={name: program.constants[target] for name, target in constants.items()},
        inputs=tuple(spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT),
        outputs=dict(zip(output_names, outputs, strict=True)),
    )


def _join_places(graph: fx.Graph, parameters: dict[str, str]) -> None:
    """One placeholder for each parameter, so that a derivative by it is the sum over all places where it stands."""
    first: dict[str, fx.Node] = {}
    for node in [node for node in graph.nodes if node.name in parameters]:
        kept = first.setdefault(parameters[node.name], node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)
            del parameters[node.name]


def _without_door(path: str) -> str:
    return path.removeprefix("model").removeprefix(".")


_DATA_DEPENDENT = re.compile(r"data-dependent|GuardOnDataDependent|_local_scalar_dense|\.item\(\)")
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parent)
_FRAME_IN_MESSAGE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s+(?P<code>.+)')


def explain(model: nn.Module, error: Exception) -> str:
    """What to tell the user about a model that could not be exported."""
    if _DATA_DEPENDENT.search(f"{type(error).__name__}: {error}"):
        reason = "its forward pass decides something in Python by the values inside a tensor"
        advice = "Decide by shapes or settings instead (or with torch.where, torch.cond), and look again."
    else:
        reason = f"torch.export said: {type(error).__name__}: {first_line(error).rstrip('.')}"
        advice = "Write the forward pass with torch operations only, and try torch.export.export(model, inputs) alone."
    place = _place_in_user_code(error)
    return f"{type(model).__name__} cannot be exported, so its graph cannot be read: {reason}{place}. {advice}"


def _place_in_user_code(error: Exception) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<")):
            continue
        return f" (at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line})"
    named = _FRAME_IN_MESSAGE.search(str(error))
    if named:
        return f" (at {named['file']}:{named['line']}, in {named['function']}: {named['code'].strip()})"
    return ""
