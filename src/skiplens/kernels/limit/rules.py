"""The rules: what each operation of an exported graph does to the signal of an infinitely wide network.

A rule takes the walk, the operation and its arguments, in which every value that depends on the inputs is a `Signal`,
and returns the signal behind it, which holds both kernels. To add one, register a function here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import add, mul
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import recycled_empty
from skiplens.graph.network import ResidualNetwork, interpret, plain_call, plan
from skiplens.graph.operations import COPYING, operation
from skiplens.kernels.limit.combine import (
    applied,
    broadcast,
    changed,
    negated,
    of_one,
    pairing,
    product_of,
    several,
    sum_of,
)
from skiplens.kernels.limit.signals import (
    BY_COORDINATE,
    Concatenation,
    Data,
    Logits,
    Mixed,
    Moments,
    Signal,
    Source,
    Unit,
    same_positions,
    weighted_sum,
)

VARIANCES, PARAMETERISATIONS = ("measured", "he", "lecun", "xavier", "torch"), ("standard", "ntk")
RULES: dict[str, Any] = {}
MATRICES = {f"aten.{name}" for name in "linear matmul mm conv1d conv2d embedding".split()}
VECTORS = "Entries of vectors that differ from coordinate to coordinate are taken for draws."
_MULTIPLES = {f"aten.{name}" for name in "mul div neg t transpose permute".split()} | COPYING


class Row(NamedTuple):
    """An operation and what is behind it: for one input, the correlation for two (averages over positions)."""

    operation: str
    module: str
    does: str
    variance: float
    correlation: float
    tangent: float
    error: float


@dataclass(frozen=True, eq=False)
class Walk:
    """What one pass through a graph was asked for, and what it met."""

    network: ResidualNetwork
    variance: str
    parameterisation: str
    needs: dict[fx.Node, tuple[int, int]]  # see `Data.needs`
    batch: int = 0  # inputs at the end that batch norm in training mode takes its averages over
    used: dict[str, float] = field(default_factory=dict)  # by parameter: what its squared gradients count
    widths: list[int] = field(default_factory=list)  # of the layers that a matrix reads
    scales: dict[fx.Node, tuple[float, float]] = field(default_factory=dict)  # by matrix: σ_w² and σ_b²
    words: dict[fx.Node, str] = field(default_factory=dict)  # what a rule did
    steps: list[tuple[fx.Node, Unit]] = field(default_factory=list)  # matrices behind a nonlinearity, and it
    rows: list["Row"] = field(default_factory=list)  # of the table, where that is to be told
    notes: dict[str, None] = field(default_factory=dict)  # sentences on what was assumed
    remembers: bool = False  # of which draws every value is a sum; see `asked`
    wide: set[fx.Node] = field(default_factory=set)  # what was found to read all pairs of positions
    maps: dict[fx.Node, Tensor] = field(default_factory=dict)  # what linear maps of positions do to unit vectors
    asked: list[bool] = field(default_factory=list)  # grows where two values of the same draws are joined
    readers: dict[str, fx.Node] = field(default_factory=dict)  # by parameter: the first operation that reads it

    def enters(self, node: fx.Node, signal: Signal, width: int) -> None:
        """Remember what a matrix reads."""
        if not isinstance(signal, Data):
            self.widths.append(width)
        if isinstance(signal, Unit) and not signal.gaussian:
            self.steps.append((node, signal))

    def name_of(self, source: Any) -> tuple[Any, str]:
        """The parameter that a tensor is a multiple of: where it enters the graph, and its first name."""
        while operation(source) in _MULTIPLES and len(source.all_input_nodes) == 1:
            source = source.all_input_nodes[0]
        name = self.network.exported.parameters.get(source.name)
        if name is None:
            raise InvalidInputError("its weights are not one parameter times a number; take parametrizations off")
        model = self.network.model
        parameter, every = model.get_parameter(name), model.named_parameters(remove_duplicate=False)
        return source, next(first for first, value in every if value is parameter)

    def gradient_of(self, node: fx.Node, place: int, variance: float) -> float:
        """What the squared gradient of a parameter counts, for the argument of a matrix that is a multiple of it.

        1 for the parameter itself in the standard parameterisation, its `variance` in the other one, 0 if it is frozen.
        """
        source: Any = node.args[place]
        placeholder, name = self.name_of(source)
        first = self.readers.setdefault(name, node)
        if first is not node and self._reads(first) != self._reads(node):
            raise InvalidInputError(f"it uses {name!r} a second time in another way, which has no rule; untie it")
        parameter = self.network.model.get_parameter(name)
        ones = interpret([source], {placeholder: torch.ones_like(parameter)}, lambda node: None)[source]
        factor = float(ones.flatten()[0]) ** 2
        counts = (factor if self.parameterisation == "standard" else variance) if parameter.requires_grad else 0.0
        self.used[name] = counts / factor if factor else 0.0
        return counts

    def _reads(self, node: fx.Node) -> list[Any]:
        """An operation and all of its arguments but the first; parameters by their first name."""
        named = self.network.exported.parameters
        rest = [self.name_of(entry)[1] if getattr(entry, "name", None) in named else entry for entry in node.args[1:]]
        return [operation(node), *rest, node.kwargs]

    def drawn(self, node: fx.Node, place: int, signal: Signal, through: Callable[[Moments], Moments]) -> Unit:
        """The Gaussian value behind a matrix; if its weights were used before, with how it goes together with that."""
        latent, name = through(signal.moments), self.name_of(node.args[place])[1]
        latent = replace(latent, roots=frozenset({(name,)}), mean=(0.0, 0.0))
        if not self.remembers:
            return Unit(latent)
        if self.readers[name] is not node:
            self.notes["The same weights at several places give values that depend on each other."] = None

        def pair(one: Signal, other: Signal) -> Moments:
            both = pairing(one, other)
            return through(weighted_sum([(0.0, one.moments)]) if both is None else both)

        return Unit(latent, terms=((1.0, Source(name, latent, signal, pair, self.asked)),))


def rule(names: str) -> Any:
    """Register a function as the rule of these operations of torch."""
    kinds = [f"aten.{name}" for name in names.split()]
    return lambda function: RULES.update(dict.fromkeys(kinds, function)) or function


def layer(walk: Walk, node: fx.Node, fans: tuple[int, int], weight: Tensor, bias: Tensor | None) -> Any:
    """A function from the second moments and the tangent kernel before a matrix to those behind it.

    K ↦ σ_w² K + σ_b², and T ↦ σ_w² T + what the gradient with respect to this layer adds.
    """
    fan_in, fan_out = fans
    by_name = {"he": 2.0, "lecun": 1.0, "xavier": 2 * fan_in / (fan_in + fan_out), "torch": 1 / 3}
    place = 0 if operation(node) == "aten.embedding" else 1
    if place == 0 or walk.name_of(node.args[place])[1].endswith("in_proj_weight"):  # torch draws these otherwise
        by_name["torch"] = 1.0 if place == 0 else by_name["xavier"]
    gain = by_name.get(walk.variance, fan_in * _mean_square(weight))
    own = fan_in * walk.gradient_of(node, place, gain / fan_in)
    offset = offset_tangent = 0.0
    if bias is not None:
        zero = walk.name_of(node.args[2])[1].endswith(("in_proj_bias", "out_proj.bias"))  # of torch's attention
        offset = {"measured": _mean_square(bias), "torch": 0.0 if zero else 1 / (3 * fan_in)}.get(walk.variance, 0.0)
        offset_tangent = walk.gradient_of(node, 2, offset)
    walk.words[node] = f"{fan_in} → {fan_out}, σ_w² = {gain:.4g}, σ_b² = {offset:.4g}"
    walk.scales[node] = gain, offset

    def behind(inside: Moments, windows: Any = None, count: int = 1) -> Moments:
        """`windows` makes new blocks of sums over the `count` positions that a matrix sees."""
        kernel, tangent = inside.second[0], inside.tangent
        if windows:
            kernel = windows(kernel)
            # nothing is trained before the first matrix
            tangent = (
                windows(tangent) if inside.roots - {("inputs",)} else recycled_empty(kernel, *kernel.shape).zero_()
            )
        tangent = (tangent.mul_ if windows else tangent.mul)(gain / count)
        tangent.add_(kernel, alpha=own / count)
        kernel = (kernel.mul_ if windows else kernel.mul)(gain / count)
        if bias is not None:
            kernel.add_(offset)
            tangent.add_(offset_tangent)
        others = [None if part is None else windows(part) if windows else part for part in inside.second[1:]]
        second = kernel, *(None if part is None else part * (gain / count) + offset for part in others)
        return replace(inside, second=second, tangent=tangent)

    return behind


def matrix(walk: Walk, node: fx.Node, signal: Any, weight: Any, bias: Any = None) -> Signal:
    """A matrix of parameters behind a signal."""
    if not isinstance(weight, Tensor) or isinstance(signal, Tensor):
        raise InvalidInputError("it has no matrix of parameters as its second factor")
    fan_in, fan_out = weight.T.shape if operation(node) == "aten.linear" else weight.shape
    inside = signal.moments
    kinds = [kind for kind, _ in inside.axes[-1]]
    if "s" in kinds:
        raise InvalidInputError("it mixes samples by a matrix, which has no rule")
    count, flattened = len(inside.grid), "p" in kinds
    if flattened and kinds.count("p") < count:
        raise InvalidInputError("it mixes some of the positions and leaves others, which has no rule yet")
    walk.enters(node, signal, fan_in)
    behind, axes = layer(walk, node, (fan_in, fan_out), weight, bias), (*inside.axes[:-1], (("c", fan_out),))

    def through(inside: Moments) -> Moments:
        if flattened:  # the matrix sees all positions, each with weights of its own
            dims = tuple(range(2, 2 + count))
            inside = inside.mapped(lambda part: same_positions(part, 2, count).mean(dim=dims), lambda part: part, ())
        return replace(behind(inside), axes=axes)

    return walk.drawn(node, 1, signal, through)


def _mean_square(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean())


@rule("add sub rsub")
def _sum(walk: Walk, node: fx.Node, one: Any, other: Any, alpha: Any = 1) -> Signal:
    kind = operation(node)
    factors = (-alpha, 1) if kind == "aten.rsub" else (1, -alpha if kind == "aten.sub" else alpha)
    terms = list(zip((one, other), map(float, factors), strict=True))
    signals = [changed(value, factor) for value, factor in terms if isinstance(value, Signal)]
    others = [(value, factor) for value, factor in terms if not isinstance(value, Signal)]
    if not others:
        return sum_of(broadcast(*signals), broadcast(*reversed(signals)))
    value, factor = others[0]
    source = node.args[0 if value is one else 1]
    table = None if isinstance(signals[0], Logits) else _positions(walk, signals[0].moments, node, source, factor)
    return sum_of(signals[0], table) if table else with_numbers(walk, signals[0], node, add, value * factor)


def _positions(walk: Walk, like: Moments, node: fx.Node, source: Any, factor: float) -> Unit | None:
    """Entries of a trained parameter that differ from position to position, which are added: a draw like a matrix."""
    named = walk.network.exported.parameters
    read = [step for step in plan([source], ()) if step.name in named] if isinstance(source, fx.Node) else []
    parameter = walk.network.model.get_parameter(named[read[0].name]) if len(read) == 1 else torch.ones(1)
    if not parameter.requires_grad or not like.grid or _number(parameter):
        return None
    entries = torch.arange(1, parameter.numel() + 1, dtype=torch.float64, device=parameter.device).view_as(parameter)
    tried = [walk.network.run([source.name], {read[0].name: part})[source.name] for part in (entries, entries * 0 + 1)]
    places = _statistics(like, node, (tried[0] / tried[1]).round())[0].flatten(end_dim=-2)
    if bool((places == places[0]).all()):
        return None
    same = torch.stack([(places == row).double().mean(dim=-1) for row in places])  # shares of equal entries
    name, variance, count = walk.name_of(read[0])[1], _mean_square(parameter), 2 + len(like.grid)
    walk.used[name] = 1.0 if walk.parameterisation == "standard" else variance

    def blocks(part: Any, each: float) -> Any:
        found = same.view(1, 1, *like.grid, *like.grid) if part is not None and part.ndim > count else 1.0
        scale = each * (factor * float(tried[1].flatten()[0])) ** 2
        return None if part is None else torch.ones_like(part) * found * scale

    second, tangent = tuple(blocks(part, variance) for part in like.second), blocks(like.tangent, walk.used[name])
    return Unit(replace(like, second=second, tangent=tangent, roots=frozenset({(name,)}), mean=(0.0, 0.0)))


@rule("mul div neg")
def _multiple(walk: Walk, node: fx.Node, one: Any, other: Any = -1.0) -> Signal:
    divides = operation(node) == "aten.div"
    if divides and isinstance(other, Signal):
        divides, other = False, pointwise(other, torch.reciprocal)
    if isinstance(one, Signal) and isinstance(other, Signal):
        return product_of(broadcast(one, other), broadcast(other, one))
    signal, numbers = (one, other) if isinstance(one, Signal) else (other, one)
    mask: Any = node.args[1 if signal is one else 0] if isinstance(numbers, Tensor) else None
    for draw in [step for step in plan([mask], ()) if operation(step) == "aten.bernoulli"] if mask else []:
        return _channel_dropout(walk, node, signal, draw)
    numbers = 1 / numbers if divides else numbers
    walk.words[node] = "times a vector" if (number := _number(numbers)) is None else f"times {number:.4g}"
    return with_numbers(walk, signal, node, mul, numbers)


def _channel_dropout(walk: Walk, node: fx.Node, signal: Any, draw: Any) -> Signal:
    """A mask of whole channels, divided by the probability to keep them."""
    if draw.meta["val"].shape[2:].numel() != 1 or not isinstance(draw.args[1], float):
        raise InvalidInputError("it multiplies by random numbers, which have no rule; use dropout")
    walk.words[node] = f"keeps channels with probability {draw.args[1]:.4g}"
    return _masked(walk, signal, 1 / draw.args[1], lambda block, _: block)


def _masked(walk: Walk, signal: Signal, growth: float, part: Callable[[Tensor, int], Tensor]) -> Signal:
    """Masks are drawn for each input, so only the moments of an input with itself grow, and of those only a part."""
    walk.notes["Masks of dropout are drawn for each input."] = None
    moments = signal.moments
    second: list[Any] = [None if block is None else block.clone() for block in moments.second]
    tangent = moments.tangent.clone()
    for block in (block for block in second[1:] if block is not None):
        part(block, 2).mul_(growth)
    for block in (second[0], tangent) if moments.same else ():
        part(block.diagonal(dim1=0, dim2=1).movedim(-1, 0), 1).mul_(growth)
    return Mixed(replace(moments, second=tuple(second), tangent=tangent))


def _number(value: Any) -> float | None:
    """A Python number, or a tensor whose entries are all the same number; None for others."""
    if isinstance(value, Tensor):
        value = value.detach().double().flatten()
        return float(value[0]) if bool((value == value[0]).all()) else None
    return float(value)


def with_numbers(walk: Walk, signal: Signal, node: fx.Node, combine: Callable[..., Any], numbers: Any) -> Signal:
    """The signal times or plus a number or a tensor; entries that differ by coordinate are taken for a draw."""
    times = combine is mul
    if (number := _number(numbers)) is not None:
        return changed(signal, number) if times else changed(signal, 1.0, number)
    if isinstance(signal, Logits) and not times:
        return signal.masked(numbers)
    moments = signal.moments
    values, mean, squares = _statistics(moments, node, numbers)
    entries = values.reshape(-1, values.shape[-1])
    if bool((entries == entries[:, :1]).all()):
        return changed(signal, (mean, mean)) if times else changed(signal, 1.0, (mean, mean))
    walk.notes[VECTORS] = None
    alike = bool((entries == entries[0]).all()) and several(signal) is not None  # at all positions
    inner = applied(signal, combine, entries[0]) if alike else Mixed(moments)
    if alike and signal.moments.roots & BY_COORDINATE:  # it went with entries of another vector before
        return inner
    products = moments.outer(moments.mean, (mean, mean)), moments.outer((mean, mean), moments.mean)
    second = [
        block if block is None else block * squares(block) if times else block + a + b + squares(block)
        for block, a, b in zip(moments.second, *products, strict=True)
    ]
    tangent = moments.tangent * squares(moments.tangent) if times else moments.tangent
    centred = times and not any(isinstance(part, Tensor) or part for part in moments.mean)
    roots = moments.roots if centred or not alike else moments.roots | BY_COORDINATE
    means = combine(moments.mean[0], mean), combine(moments.mean[1], mean)
    return replace(inner, known=replace(moments, second=tuple(second), mean=means, tangent=tangent, roots=roots))


def _statistics(moments: Moments, node: fx.Node, numbers: Tensor) -> tuple[Tensor, Tensor, Any]:
    """Numbers at each position and coordinate, and averages over coordinates: of them, of their products as a block."""
    value, axes = node.meta["val"], moments.axes
    shape = (value[0] if isinstance(value, tuple | list) else value).shape
    if [kind for kind, _ in axes[0]] != ["s"] or (numbers.ndim == len(shape) and numbers.shape[0] != 1):
        raise InvalidInputError(f"it combines a tensor of shape {tuple(numbers.shape)} with values; it has no rule yet")
    parts = [part for axis in axes[1:] for part in axis]
    sizes = [size for _, size in parts] if len(parts) else []
    values = numbers.detach().to(moments.tangent).expand(1, *shape[1:])[0].reshape(sizes)
    order = sorted(range(len(parts)), key=lambda place: parts[place][0] == "c")
    values, count = values.permute(order).reshape(*moments.grid, -1), len(moments.grid)
    mean = values.mean(dim=-1)[None, None]

    def squares(block: Tensor) -> Tensor:
        if not moments.grid or block.ndim == 2 + count:
            return values.square().mean(dim=-1)[None, None]
        flat = values.flatten(end_dim=-2)
        return (flat @ flat.T / flat.shape[1]).view(1, 1, *moments.grid, *moments.grid)

    return values, mean, squares


def concatenated(node: fx.Node, signals: list[Any], dim: int) -> Signal:
    """Coordinates of several values beside each other."""
    if not all(isinstance(signal, Signal) for signal in signals):
        raise InvalidInputError("it joins features of values with others that do not depend on the inputs")
    sources: Any = node.args[0]
    widths = [source.meta["val"].shape[dim] for source in sources]
    parts = (s.parts if isinstance(s, Concatenation) else ((w, s),) for w, s in zip(widths, signals, strict=True))
    return Concatenation(tuple(part for some in parts for part in some))


@rule("dropout native_dropout")
def _dropout(walk: Walk, node: fx.Node, signal: Signal, probability: float, train: bool | None = True) -> Any:
    """Entries of an input grow by 1/(1 − p) with themselves."""
    if train:
        growth, count = 1 / (1 - probability) if probability < 1 else torch.inf, len(signal.moments.grid)
        signal = _masked(walk, signal, growth, lambda block, lead: same_positions(block, lead, count))
    return (signal, None) if operation(node) == "aten.native_dropout" else signal


@rule("layer_norm rms_norm group_norm")
def _norm(walk: Walk, node: fx.Node, signal: Signal, shape: Any, weight: Any = None, *rest: Any) -> Signal:
    """Averages over infinitely many coordinates are numbers, so the tangent kernel is scaled like the covariance."""
    kind, axes = operation(node), signal.moments.axes
    bias, eps = None, rest[0] if rest and rest[0] is not None else torch.finfo(node.meta["val"].dtype).eps
    over = list(range(1, len(axes))) if kind == "aten.group_norm" else list(range(len(axes) - len(shape), len(axes)))
    kinds = [kind for axis in over for kind, _ in axes[axis]]
    if "c" not in kinds or "s" in kinds:
        raise InvalidInputError("it normalises positions and no coordinates, which has no rule yet")
    if kind == "aten.group_norm" and shape == node.meta["val"].shape[1]:
        raise InvalidInputError("each of its groups is one channel, as in instance norm; take fewer groups")
    places = [axis for axis, parts in enumerate(axes) for kind, _ in parts if kind == "p"]
    dims = tuple(2 + number for number, axis in enumerate(places) if axis in over)

    def averaged(pair: Any) -> Any:
        return [part.mean(dim=dims, keepdim=True) if dims and isinstance(part, Tensor) else part for part in pair]

    if kind != "aten.rms_norm":
        bias, eps = rest[0] if rest else None, rest[1] if len(rest) > 1 else 1e-5
        left, right = averaged(signal.moments.mean)
        signal = changed(signal, 1.0, (-left, -right))
    left, right = averaged(signal.moments.variances)
    signal = changed(signal, ((left + eps).rsqrt(), (right + eps).rsqrt()))
    return affine(walk, signal, node, (weight, bias), len(axes) if kind == "aten.group_norm" else 0)


def affine(walk: Walk, signal: Signal, node: fx.Node, gains: tuple[Any, Any], axes: int = 0) -> Signal:
    """The signal times gains plus offsets; with `axes`, those of the coordinates on axis 1 of so many."""
    for combine, numbers in zip((mul, add), gains, strict=True):
        if numbers is not None:
            placed = numbers.view(-1, *(1,) * (axes - 2)) if axes else numbers
            signal = with_numbers(walk, signal, node, combine, placed)
    return signal


_PHASES = {"aten.sin": 0.0, "aten.cos": math.pi / 2}  # of a sine
# below 0, where it is 1 above 0
_SLOPES = {"aten.relu": 0.0, "aten.abs": -1.0, "aten.leaky_relu": 0.01, "aten.prelu": 0.25}
_POINTWISE = """
    relu abs leaky_relu prelu erf gelu tanh sigmoid silu sin cos softplus elu celu selu mish log_sigmoid exp pow
    hardtanh hardsigmoid hardswish hardshrink softshrink threshold sign clamp clamp_min clamp_max relu6
    square sqrt rsqrt reciprocal expm1 log1p atan asinh sinh cosh
"""


@rule(_POINTWISE)
def _pointwise(walk: Walk, node: fx.Node, *arguments: Any, **keywords: Any) -> Signal:
    """A function of every coordinate: closed forms where it is linear on both sides of 0, an expansion elsewhere."""
    (signal,) = (argument for argument in arguments if isinstance(argument, Signal))
    slope = _SLOPES.get(operation(node))
    if slope is not None and len(arguments) > 1:
        if (slope := _number(arguments[1])) is None:
            raise InvalidInputError("its slopes differ from channel to channel, which has no rule; give it one slope")
        arguments = tuple(entry.flatten()[:1] if isinstance(entry, Tensor) else entry for entry in arguments)

    def function(values: Tensor) -> Any:
        return plain_call(node, tuple(values if entry is signal else entry for entry in arguments), keywords)

    return pointwise(signal, function, slope, _PHASES.get(operation(node)))


@rule("gt ge lt le")
def _compared(walk: Walk, node: fx.Node, signal: Signal, other: Any) -> Signal:
    """1 where it holds and 0 elsewhere; `where` reads it."""
    return pointwise(signal, lambda z: plain_call(node, (z, other), {}) + 0 * z)


@rule("where")
def where(walk: Walk, node: fx.Node, holds: Any, one: Any, other: Any) -> Signal:
    """One value where a comparison holds, another elsewhere."""
    parts = ((holds, one), (changed(holds, -1.0, 1.0), other))
    return sum_of(*(product_of(a, b) if isinstance(b, Signal) else changed(a, float(b)) for a, b in parts))


def pointwise(
    signal: Signal, function: Callable[[Tensor], Any], slope: float | None = None, phase: float | None = None
) -> Signal:
    """A function of a coordinate; z above 0 and slope·z below if there is a `slope`, sin(z + phase) if a `phase`."""
    if isinstance(signal, Concatenation):
        return Concatenation(tuple((width, pointwise(part, function, slope, phase)) for width, part in signal.parts))
    if not isinstance(signal, Unit):
        return applied(signal, function)
    if slope is None or not signal.gaussian:
        wave = (signal.scale, phase) if signal.gaussian and phase is not None else None
        return replace(of_one(signal, lambda z: function(signal(z))), wave=wave)
    # −z is as Gaussian as z, but not z
    unit = signal if signal.scale > 0 else negated(signal)
    return replace(unit, slope=slope)
