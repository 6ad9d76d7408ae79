"""Signal, gradient and units of every layer, seen by hooks in one forward and one backward pass of any module."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skiplens.base import Float, Int, InvalidInputError, Progress, Randomness, silent
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch, tensors_in
from skiplens.graph.functional import main_output, nodes_behind
from skiplens.graph.lens import Lens, Subject
from skiplens.graph.loss import Loss, fitted, loss_rule
from skiplens.graph.pieces import pieces_of, slopes
from skiplens.readings.reading import Provenance, Reading
from skiplens.signal.reading import Names
from skiplens.signal.seen import Always, Seen, Share, Size, Spread
from skiplens.signal.units import FLAT_SLOPE


class LayerStates(Reading, kind="layers"):
    """What passes each layer: a module without children. A layer that is called again has one more entry.

    Attributes:
        samples: How many samples were looked at.
        loss: The loss of these samples.
        names: Names of the layers, in the order of their calls.
        kinds: weights, activation, normalisation or other.
        types: Names of their classes.
        matrices: Names of the parameters of each that have two axes or more.
        shifts: Names of its other parameters.
        inputs: Root mean square of what each gets.
        outputs: Root mean square of what it gives.
        gradients: Norm of the derivative of the loss by what it gives; NaN where none comes there.
        shut: For a ReLU the share of units that are zero on all samples, for weights that of inputs which an operation
            before them made zero; for tanh and its kind the share of values with under 1 % of the largest slope.
        units: How many units there are.
        spreads: Mean of 1 − cosine between the inputs of two samples: 0 where all samples look alike.
        input_spread: The same of the inputs of the model.
        parameter_norms: Norm of its own parameters.
        parameter_gradients: Norm of the derivative of the loss by them.
        statistics: Numbers from which a batch norm in training mode takes a variance; 0 for all other layers.
        unreached: Modules with trainable parameters of which none gets a gradient, the outermost ones.
        aside: Those of them that come after everything that the loss reaches, or lead to other outputs alone.
        zero_gradients: Parameters whose gradient is zero in every entry.
        trainable: How many parameters, as tensors, want a gradient.
        joins: Sums of which one part is no product with weights, as a shortcut is.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        "inputs": "the layer gets no real numbers",
        "gradients": "no derivative comes to the layer",
        "shut": "the layer can shut no units, or zeros do not tell",
        **dict.fromkeys(("spreads", "input_spread"), "there is no axis of at least two samples"),
        "parameter_norms": "the layer has no parameters",
        "parameter_gradients": "no parameter of the layer gets a derivative",
    }

    samples: int
    loss: float
    names: Names
    kinds: Names
    types: Names
    matrices: tuple[Names, ...]
    shifts: tuple[Names, ...]
    inputs: Float[Tensor, " layers"]
    outputs: Float[Tensor, " layers"]
    gradients: Float[Tensor, " layers"]
    shut: Float[Tensor, " layers"]
    units: Int[Tensor, " layers"]
    spreads: Float[Tensor, " layers"]
    input_spread: float
    parameter_norms: Float[Tensor, " layers"]
    parameter_gradients: Float[Tensor, " layers"]
    statistics: Int[Tensor, " layers"]
    unreached: Names = ()
    aside: Names = ()
    zero_gradients: Names = ()
    trainable: int = 0
    joins: int = 0

    def of_kind(self, kind: str) -> list[int]:
        """Places of the layers of this kind."""
        return [place for place, found in enumerate(self.kinds) if found == kind]


@dataclass(frozen=True)
class LayersLens(Lens):
    """Signal and gradient from layer to layer, with and without residual blocks."""

    name: ClassVar[str] = "layers"
    vectors: ClassVar[int] = 1
    question: ClassVar[str] = "Does every layer pass on signal and gradient, and tell samples apart?"

    memory: int | None = None
    """Bytes that may be used; half of what is free if not given."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> LayerStates:
        """One forward and one backward pass; nothing is drawn at random."""
        batch, _ = subject.few(subject.batch.samples, passes=3)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        progress("looking at each layer", 0, 1)
        values = layer_states(subject.model, batch, subject.loss, memory=self.memory).values()
        progress("looking at each layer", 1, 1)
        return LayerStates(**values, provenance=clock.end())


def layer_states(model: nn.Module, batch: Batch, loss: Loss = None, *, memory: int | None = None) -> LayerStates:
    """The states of all layers of `model` on `batch`; where targets fit no loss, that of the mean square of outputs.

    `memory` is in bytes, half of what is free if None: samples that do not fit at once go through in pieces.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    fixed = 2 * sum(p.numel() * p.element_size() for p in named.values())  # the gradient, and that of a piece
    pieces = pieces_of(model, batch, memory, "the layers in one pass", fixed)
    watches: list[_Watch] = []
    elsewhere: set[int] = set()

    def watched(piece: Batch) -> Any:
        watches.append(_Watch(piece.samples))
        return watches[-1].call(model, piece)

    with preserve_state(model), torch.enable_grad():
        if len(pieces) == 1:
            returned = watched(batch)
            value = _loss(returned, batch, loss)
            elsewhere = {id(getattr(node, "variable", None)) for node in nodes_behind(_real(returned))}
            gradients, joins = _gradients(named, [value]), _joins(value)
        else:
            value, parts = slopes(model, pieces, lambda outputs: _loss(outputs, batch, loss), watched)
            gradients, joins = dict.fromkeys(named), 0
            for outputs, by in parts:
                joins = max([joins, *map(_joins, outputs)])
                for name, found in _gradients(named, outputs, by).items():
                    known = gradients[name]
                    gradients[name] = found if known is None else known if found is None else known + found
                watches[:] = [reduce(_Watch.joined, watches)]
        states = _states(model, batch, watches[0].rows, float(value.detach()), gradients, joins)
        # Those on the way to another output, such as auxiliary heads, stand aside too.
        lost = set(states.unreached) - {*states.aside, "the whole model"}
        beside = [name for name in lost if any(id(p) in elsewhere for p in model.get_submodule(name).parameters())]
        return replace(states, aside=(*states.aside, *beside))


def _gradients(named: dict[str, nn.Parameter], outputs: list[Tensor], by: list[Tensor] | None = None) -> "Gradients":
    found: tuple[Tensor | None, ...] = (None,) * len(named)
    if named and any(output.requires_grad for output in outputs):
        found = torch.autograd.grad(outputs, list(named.values()), by, allow_unused=True)
    return dict(zip(named, found, strict=True))


def _loss(outputs: Any, batch: Batch, loss: Loss) -> Tensor:
    try:
        kind, prepared = fitted(main_output(outputs), batch, loss)
        return loss_rule(kind).plain(outputs, prepared.targets)
    except InvalidInputError:
        if loss is not None:
            raise
        return main_output(outputs).square().mean()


def _joins(value: Tensor) -> int:
    """Sums in the graph of autograd of two values that are neither parameters nor both fresh from weights."""
    found = 0
    for node in nodes_behind([value]):
        parts = [part for part, _ in node.next_functions]
        names = [part.name() for part in parts if part is not None and "AccumulateGrad" not in part.name()]
        fresh = all("mm" in name or "Conv" in name for name in names)
        found += node.name().startswith("AddBackward") and len(names) == 2 and not fresh
    return found


def _is_layer(name: str, module: nn.Module) -> bool:
    # An attention of torch uses the weights of its child without calling it; what makes a weight is part of its layer.
    if "parametrizations" in name.split("."):
        return False
    parts = [name for name, _ in module.named_children() if name != "parametrizations"]
    return not parts or isinstance(module, nn.MultiheadAttention)


def _kind(layer: nn.Module) -> str:
    if "Norm" in type(layer).__name__:
        return "normalisation"
    if any(p.ndim > 1 for p in layer.parameters()):
        return "weights"
    return "activation" if "activation" in type(layer).__module__ else "other"


Rows = list[dict[str, Any]]
FLAT: dict[type[nn.Module], Callable[[Any, Tensor], Tensor]] = {
    nn.Tanh: lambda layer, y: 1 - y.square() < FLAT_SLOPE,
    nn.Sigmoid: lambda layer, y: 4 * y * (1 - y) < FLAT_SLOPE,
    nn.Softsign: lambda layer, y: (1 - y.abs()).square() < FLAT_SLOPE,
    nn.Hardtanh: lambda layer, y: (y <= layer.min_val) | (y >= layer.max_val),
}


@dataclass
class _Watch:
    """What the hooks see; numbers stay on their device until all is seen."""

    samples: int
    rows: Rows = field(default_factory=list)
    channels_last: bool = True  # of the last weights or normalisation that was called

    def call(self, model: nn.Module, batch: Batch) -> Any:
        """What the model returns, with hooks on all its layers until then."""
        with ExitStack() as kept:  # until the backward pass, in which a layer may be called again to save memory
            for name, layer in model.named_modules():
                for hook in self.hooks(name, layer) if _is_layer(name, layer) else ():
                    kept.enter_context(hook)
            return batch.arguments().call(model)

    def joined(self, other: "_Watch") -> "_Watch":
        """What is seen of the samples of both."""
        rows = [
            {name: value + new[name] if isinstance(value, Seen) else value for name, value in row.items()}
            for row, new in zip(self.rows, other.rows, strict=True)
        ]
        return _Watch(self.samples + other.samples, rows)

    def hooks(self, name: str, layer: nn.Module) -> Iterator[Any]:
        """Hooks on one layer: before it, for an activation may change its input in place, and after it."""
        seen: list[dict[str, Any]] = []

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.append({"name": name, "layer": layer, **self._entered(layer, next(_real([args, kwargs]), None))})

        def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            row, value = seen.pop(), next(_real(output), None)
            if value is not None:
                self._left(row, layer, value)

        yield layer.register_forward_pre_hook(before, with_kwargs=True)
        yield layer.register_forward_hook(after)

    @torch.no_grad()
    def _entered(self, layer: nn.Module, value: Tensor | None) -> dict[str, Any]:
        row: dict[str, Any] = {"kind": _kind(layer)}
        if value is None:
            return row
        row |= {"inputs": Size(_norm(value), value.numel()), "spreads": Spread.of(value, self.samples)}
        if row["kind"] in ("weights", "normalisation"):
            convolves = "Conv" in type(layer).__name__ or isinstance(layer, _BatchNorm | nn.GroupNorm)
            self.channels_last = not convolves or "Conv1D" in type(layer).__name__  # that of Hugging Face is a matrix
        # An input that no parameter made is data, which may well be zero in some places.
        if row["kind"] == "weights" and value.requires_grad and self._zeros_tell():
            row |= self._dead(value == 0)
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            row["statistics"] = value.numel() // value.shape[1]
        return row

    def _zeros_tell(self) -> bool:
        """Whether zeros were made by a function, not by weights that are zero or by an activation that was seen."""
        last = next((row for row in reversed(self.rows) if row["kind"] != "other"), None)
        if last is None or last["kind"] == "activation":
            return last is not None and "shut" not in last
        return any(bool(p.any()) for p in last["layer"].parameters())

    def _left(self, row: dict[str, Any], layer: nn.Module, value: Tensor) -> None:
        with torch.no_grad():
            row["outputs"] = Size(_norm(value), value.numel())
            if isinstance(layer, nn.ReLU | nn.ReLU6):
                row |= self._dead(value == 0)
            elif type(layer) in FLAT:
                flat = FLAT[type(layer)](layer, value)
                row |= {"shut": Share(flat.sum(dtype=torch.float64), flat.numel()), "units": value[0].numel()}
        if value.requires_grad:  # called with the derivative by this value, also if it is changed in place later
            value.register_hook(lambda gradient: row.update(gradients=Size(_norm(gradient))))
        self.rows.append(row)

    def _dead(self, zero: Tensor) -> dict[str, Any]:
        axis = -1 if self.channels_last or zero.ndim < 3 else 1
        always = zero.movedim(axis, 0).flatten(1).all(1) if zero.ndim > 1 else zero
        return {"shut": Always(always), "units": len(always)}


def _real(value: Any) -> Iterator[Tensor]:
    return (tensor for tensor in tensors_in(value) if tensor.is_floating_point())


def _norm(value: Tensor) -> Tensor:
    """In float64, in which no square of a float32 overflows."""
    value = value.detach().abs() if value.is_complex() else value.detach()
    return torch.linalg.vector_norm(value, dtype=torch.float64)


AT_ONCE = 2**17  # entries of the inputs, a few times in float64


def _input_spread(batch: Batch) -> float:
    """Of real inputs as they are; of whole numbers such as tokens the share of entries in which samples differ."""
    tensors = [tensor for tensor in tensors_in(batch.inputs) if tensor.shape[:1] == (batch.samples,)]
    real = [tensor.reshape(batch.samples, -1) for tensor in tensors if tensor.is_floating_point()]
    if not real:
        return max((float((t[1:] != t[:-1]).double().mean()) for t in tensors if len(t) > 1), default=math.nan)
    size = max(1, AT_ONCE // max(1, sum(rows.shape[1] for rows in real)))
    chunks = zip(*(rows.split(size) for rows in real), strict=True)
    found = (Spread.of(torch.cat([part.double() for part in parts], 1), len(parts[0])) for parts in chunks)
    return float(reduce(Spread.__add__, found))


Gradients = dict[str, Tensor | None]


def _states(model: nn.Module, batch: Batch, rows: Rows, loss: float, gradients: Gradients, joins: int) -> LayerStates:
    first = {id(p): name for name, p in model.named_parameters()}  # a tied one has the name of its first place
    by_parameter = {key: gradients[name] for key, name in first.items() if name in gradients}

    def numbers(name: str, missing: float = math.nan) -> Float[Tensor, " layers"]:
        return torch.tensor([float(row.get(name, missing)) for row in rows], dtype=torch.float64)

    def norms(values: Callable[[nn.Parameter], Tensor | None]) -> Float[Tensor, " layers"]:
        found = [[_norm(v) for p in row["layer"].parameters() if (v := values(p)) is not None] for row in rows]
        return torch.tensor([math.hypot(*map(float, sizes)) if sizes else math.nan for sizes in found]).double()

    def parameters(row: dict[str, Any], matrices: bool) -> Names:
        found = {first[id(p)]: p for p in row["layer"].parameters()}
        return tuple(name for name, p in found.items() if name in gradients and (p.ndim > 1) == matrices)

    columns: Any = {name: numbers(name) for name in ("inputs", "outputs", "gradients", "shut", "spreads")}
    unreached, aside = _unreached(model, rows, by_parameter)
    return LayerStates(
        **columns,
        samples=batch.samples,
        loss=loss,
        names=tuple(row["name"] or type(model).__name__ for row in rows),
        kinds=tuple(row["kind"] for row in rows),
        types=tuple(type(row["layer"]).__name__ for row in rows),
        matrices=tuple(parameters(row, True) for row in rows),
        shifts=tuple(parameters(row, False) for row in rows),
        units=numbers("units", 0).long(),
        statistics=numbers("statistics", 0).long(),
        input_spread=_input_spread(batch),
        parameter_norms=norms(lambda p: p),
        parameter_gradients=norms(lambda p: by_parameter.get(id(p))),
        unreached=unreached,
        aside=aside,
        zero_gradients=tuple(name for name, found in gradients.items() if found is not None and not bool(found.any())),
        trainable=len(gradients),
        joins=joins,
    )


def _unreached(model: nn.Module, rows: Rows, gradients: dict[int, Tensor | None]) -> tuple[Names, Names]:
    """Modules that get no gradient, the outermost ones, and those of them that are called after all that get one."""
    if all(found is None for found in gradients.values()):
        return (("the whole model",) if gradients else ()), ()

    def found_by(module: nn.Module) -> list[bool]:
        return [gradients[id(p)] is not None for p in module.parameters() if id(p) in gradients]

    lost: dict[str, int] = {}
    last = max((place for place, row in enumerate(rows) if any(found_by(row["layer"]))), default=-1)
    for outer, module in model.named_modules():
        own = found_by(module)
        if own and not any(own) and not any(outer.startswith(f"{name}.") for name in lost):
            calls = [place for place, row in enumerate(rows) if f"{row['name']}.".startswith(f"{outer}.")]
            lost[outer] = min(calls, default=-1)
    return tuple(lost), tuple(name for name, place in lost.items() if place > last)
