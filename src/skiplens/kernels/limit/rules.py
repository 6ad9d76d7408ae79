"""The rules: what each operation of an exported graph does to the signal of an infinitely wide network.

A rule takes the walk, the operation and its arguments, in which every value that depends on the inputs is a `Signal`,
and returns the signal behind it, which holds both kernels. To add one, register a function here.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import InvalidInputError
from skiplens.graph.network import ResidualNetwork, interpret, plain_call
from skiplens.graph.operations import COPYING, operation
from skiplens.kernels.limit.signals import (
    Concatenation,
    Data,
    Mixed,
    Moments,
    Signal,
    Unit,
    changed,
    product_of,
    sum_of,
)

VARIANCES, PARAMETERISATIONS = ("measured", "he", "lecun", "xavier", "torch"), ("standard", "ntk")
RULES: dict[str, Any] = {}
MATRICES = {"aten.linear", "aten.matmul", "aten.mm"}
_MULTIPLES = {f"aten.{name}" for name in "mul div neg t transpose permute".split()} | COPYING


@dataclass(frozen=True, eq=False)
class Walk:
    """What one pass through a graph was asked for, and what it met."""

    network: ResidualNetwork
    variance: str
    parameterisation: str
    used: dict[str, float] = field(default_factory=dict)  # by parameter: what its squared gradients count
    widths: list[int] = field(default_factory=list)  # of the layers that a matrix reads
    words: dict[fx.Node, str] = field(default_factory=dict)  # what a rule did
    found: dict[fx.Node, Signal] = field(default_factory=dict)  # what a rule returned, where that is to be told

    def gradient_of(self, source: Any, variance: float) -> float:
        """What the squared gradient of a parameter counts, for the tensor `source` that is a multiple of it.

        1 for the parameter itself in the standard parameterisation, its `variance` in the other one, 0 if it is frozen.
        """
        placeholder = source
        while operation(placeholder) in _MULTIPLES and len(placeholder.all_input_nodes) == 1:
            placeholder = placeholder.all_input_nodes[0]
        name = self.network.exported.parameters.get(placeholder.name)
        if name is None:
            raise InvalidInputError("its weights are not one parameter times a number, so nothing tells their draw")
        if name in self.used:
            raise InvalidInputError(f"it uses {name!r} a second time; shared weights have no rule yet")
        parameter = self.network.model.get_parameter(name)
        ones = interpret([source], {placeholder: torch.ones_like(parameter)}, lambda node: None)[source]
        factor = float(ones.flatten()[0]) ** 2
        counts = (factor if self.parameterisation == "standard" else variance) if parameter.requires_grad else 0.0
        self.used[name] = counts / factor if factor else 0.0
        return counts


def rule(names: str) -> Any:
    """Register a function as the rule of these operations of torch."""
    kinds = [f"aten.{name}" for name in names.split()]
    return lambda function: RULES.update(dict.fromkeys(kinds, function)) or function


@rule("linear matmul mm")
def _matrix(walk: Walk, node: fx.Node, signal: Any, weight: Any, bias: Any = None) -> Signal:
    """K ↦ σ_w² K + σ_b², and T ↦ σ_w² T + what the gradient with respect to this layer adds."""
    if not isinstance(weight, Tensor) or isinstance(signal, Tensor):
        raise InvalidInputError("it is no product of a value and a matrix of parameters, and others have no rule yet")
    fan_in, fan_out = weight.T.shape if operation(node) == "aten.linear" else weight.shape
    by_name = {"he": 2.0, "lecun": 1.0, "xavier": 2 * fan_in / (fan_in + fan_out), "torch": 1 / 3}
    gain = by_name.get(walk.variance, fan_in * _mean_square(weight))
    own = fan_in * walk.gradient_of(node.args[1], gain / fan_in)
    offset = offset_tangent = 0.0
    if bias is not None:
        offset = {"measured": _mean_square(bias), "torch": 1 / (3 * fan_in)}.get(walk.variance, 0.0)
        offset_tangent = walk.gradient_of(node.args[2], offset)
    walk.words[node] = f"{fan_in} → {fan_out}, σ_w² = {gain:.4g}, σ_b² = {offset:.4g}"
    walk.widths.extend([] if isinstance(signal, Data) else [fan_in])
    inside = signal.moments
    cross, left, right = (gain * part + offset for part in inside.second)
    tangent = gain * inside.tangent + own * inside.second[0] + offset_tangent
    return Unit(Moments((cross, left, right), tangent, frozenset({node}), same=inside.same))


def _mean_square(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean())


@rule("add sub rsub")
def _sum(walk: Walk, node: fx.Node, one: Any, other: Any, alpha: float = 1) -> Signal:
    kind = operation(node)
    factors = (-alpha, 1) if kind == "aten.rsub" else (1, -alpha if kind == "aten.sub" else alpha)
    terms = list(zip((one, other), map(float, factors), strict=True))
    signals = [changed(value, factor) for value, factor in terms if isinstance(value, Signal)]
    numbers = [factor * _number(value) for value, factor in terms if not isinstance(value, Signal)]
    return changed(signals[0], 1.0, numbers[0]) if numbers else sum_of(*signals)


@rule("mul div neg")
def _multiple(walk: Walk, node: fx.Node, one: Any, other: Any = -1.0) -> Signal:
    divides = operation(node) == "aten.div"
    if divides and isinstance(other, Signal):
        raise InvalidInputError("it divides by a value that depends on the inputs, which has no rule yet")
    if isinstance(one, Signal) and isinstance(other, Signal):
        return product_of(one, other)
    signal, number = (one, _number(other)) if isinstance(one, Signal) else (other, _number(one))
    walk.words[node] = f"times {1 / number if divides else number:.4g}"
    return changed(signal, 1 / number if divides else number)


def _number(value: Any) -> float:
    """A Python number, or a tensor whose entries are all the same number."""
    if isinstance(value, Tensor) and not bool((value == value.flatten()[0]).all()):
        raise InvalidInputError(f"it combines a tensor of shape {tuple(value.shape)} with values; numbers have a rule")
    return float(value.detach().flatten()[0] if isinstance(value, Tensor) else value)


@rule("cat")
def _concatenate(walk: Walk, node: fx.Node, signals: list[Any], dim: int = 0) -> Signal:
    if dim not in (1, -1) or not all(isinstance(signal, Signal) for signal in signals):
        raise InvalidInputError("it joins something else than the features of values that depend on the inputs")
    sources: Any = node.args[0]
    widths = [source.meta["val"].shape[1] for source in sources]
    parts = (s.parts if isinstance(s, Concatenation) else ((w, s),) for w, s in zip(widths, signals, strict=True))
    return Concatenation(tuple(part for some in parts for part in some))


@rule("view reshape flatten clone contiguous alias _to_copy")
def _unchanged(walk: Walk, node: fx.Node, signal: Signal, *_: Any, **__: Any) -> Signal:
    if node.all_input_nodes[0].meta["val"].shape != node.meta["val"].shape:
        raise InvalidInputError(f"it changes the shape to {tuple(node.meta['val'].shape)}")
    return signal


@rule("dropout native_dropout")
def _dropout(walk: Walk, node: fx.Node, signal: Signal, probability: float, train: bool | None = True) -> Any:
    """Masks are drawn for each input, so only the moments of an input with itself grow, by 1/(1 − p)."""
    if train:
        growth = 1 / (1 - probability) if probability < 1 else torch.inf
        cross, left, right = signal.moments.second
        cross, tangent = cross.clone(), signal.moments.tangent.clone()
        for matrix in (cross, tangent) if signal.moments.same else ():
            matrix.diagonal().mul_(growth)
        signal = Mixed(replace(signal.moments, second=(cross, left * growth, right * growth), tangent=tangent))
    return (signal, None) if operation(node) == "aten.native_dropout" else signal


@rule("layer_norm rms_norm")
def _norm(walk: Walk, node: fx.Node, signal: Signal, shape: Any, weight: Any = 1.0, *rest: Any) -> Signal:
    """Averages over infinitely many coordinates are numbers, so the tangent kernel is scaled like the covariance."""
    bias, eps = 0.0, rest[0] if rest and rest[0] is not None else torch.finfo(node.meta["val"].dtype).eps
    if operation(node) == "aten.layer_norm":
        bias, eps = (rest[0] if rest and rest[0] is not None else 0.0), rest[1] if len(rest) > 1 else 1e-5
        left, right = signal.moments.mean
        signal = changed(signal, 1.0, (-left, -right))
    _, left, right = signal.moments.second
    signal = changed(signal, ((left + eps).rsqrt(), (right + eps).rsqrt()))
    return changed(signal, _number(1.0 if weight is None else weight), _number(bias))


_SLOPES = {"aten.relu": 0.0, "aten.abs": -1.0, "aten.leaky_relu": 0.01}  # below 0, where it is 1 above 0


@rule("relu abs leaky_relu erf gelu tanh sigmoid silu sin cos softplus elu celu selu mish log_sigmoid hardtanh exp pow")
def _pointwise(walk: Walk, node: fx.Node, *arguments: Any, **keywords: Any) -> Signal:
    """A function of every coordinate: closed forms where it is linear on both sides of 0, an expansion elsewhere."""
    (signal,) = (argument for argument in arguments if isinstance(argument, Signal))
    slope = _SLOPES.get(operation(node))

    def function(values: Tensor) -> Any:
        return plain_call(node, tuple(values if entry is signal else entry for entry in arguments), keywords)

    def applied(signal: Signal) -> Signal:
        if isinstance(signal, Concatenation):
            return Concatenation(tuple((width, applied(part)) for width, part in signal.parts))
        if isinstance(signal, Mixed | Data):
            raise InvalidInputError("its input is a mixture that is not Gaussian; put a matrix before it")
        if slope is None or signal.slope != 1:
            return Unit(signal.latent, None, lambda z: function(signal(z)))
        # −z is as Gaussian as z, but not z
        unit = signal if signal.scale > 0 else Unit(signal.moments)
        return replace(unit, slope=float(arguments[1]) if len(arguments) > 1 else slope)

    return applied(signal)
