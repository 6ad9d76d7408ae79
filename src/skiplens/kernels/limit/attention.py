"""The rule of attention, with logits that are divided by the size of a head or by its root.

Divided by the size, logits become numbers: averages over infinitely many coordinates, 0 for independent queries and
keys. Divided by its root they stay random, Gaussian with covariance Σ_q Σ_k and independent from head to head (Hron et
al. 2020, Infinite attention); expectations of their softmax have no closed form and are averaged over drawn logits.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import InvalidInputError, refuse_if
from skiplens.graph.operations import REARRANGING, operation
from skiplens.kernels.limit.combine import moved
from skiplens.kernels.limit.draws import root_of
from skiplens.kernels.limit.positions import between, linear, reordered
from skiplens.kernels.limit.rules import Walk, rule, where
from skiplens.kernels.limit.signals import Logits, Mixed, Moments, Signal, Unit, dependent, same_positions

DRAWS = 2048  # of the logits, the same for all pairs
_AT_ONCE = 2**21
_UNSEEN = -1e4  # logits below weigh nothing
_MULTIPLES = {"aten.mul", "aten.div"}
AVERAGED = "Heads are taken for many."  # told where logits are drawn


@rule("scaled_dot_product_attention")
def _attention(  # noqa: PLR0913 - the arguments of torch
    walk: Walk,
    node: fx.Node,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    **_: Any,
) -> Signal:
    refuse_if(dropout_p, "dropout of attention weights has no rule yet; set it to 0")
    logits = _logits(node.args[:2], (query, key), scale)
    if isinstance(attn_mask, Tensor):
        seen = attn_mask.dtype == torch.bool
        logits = logits.masked(torch.where(attn_mask, 0.0, -math.inf) if seen else attn_mask)
    return _attended(walk, node, replace(logits, weights=True), value, is_causal)


@rule("matmul bmm")
def _product(walk: Walk, node: fx.Node, one: Any, other: Any) -> Signal:
    """Of a value with a matrix of parameters, of queries with keys, or of the weights of attention with values."""
    if isinstance(one, Tensor) and one.ndim == 2:
        return between(walk, node, other, len(other.moments.axes) - 2, (one, None))
    if not isinstance(one, Signal) or not isinstance(other, Signal):
        return linear(walk, node, one, other)
    if isinstance(one, Logits):
        return _attended(walk, node, one, other)
    *lead, columns, summed = range(len(other.moments.axes))
    return _logits(node.args, (one, _ordered(other, [*lead, summed, columns])), 1.0)


@rule("einsum")
def _einsum(walk: Walk, node: fx.Node, equation: str, operands: list[Any], **__: Any) -> Signal:
    """The same products, with their axes in any order."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    parts: list[Any] = list(zip(operands, inputs.split(","), node.args[1], strict=True))  # type: ignore[arg-type]
    (one, a, left), (other, b, right) = reversed(parts) if isinstance(operands[-1], Logits) else parts
    lead = [letter for letter in out if letter in a and letter in b]
    rows, columns = ([letter for letter in own if letter in out and letter not in lead] for own in (a, b))
    summed = [letter for letter in a if letter not in out]
    alone = not (isinstance(one, Signal) and isinstance(other, Signal)) or {*b} != {*lead, *columns, *summed}
    if alone or [len(rows), len(columns), len(summed)] != [1, 1, 1]:
        raise InvalidInputError("it is neither the product of queries and keys nor that of weights and values")
    one, found = _ordered(one, [a.index(letter) for letter in [*lead, *rows, *summed]]), [*lead, *rows, *columns]
    if isinstance(one, Logits):
        other = _ordered(other, [b.index(letter) for letter in [*lead, *summed, *columns]])
        behind = _attended(walk, node, one, other)
    else:
        other = _ordered(other, [b.index(letter) for letter in [*lead, *columns, *summed]])
        behind = _logits((left, right), (one, other), 1.0)
    return _ordered(behind, [found.index(letter) for letter in out])


def _ordered(signal: Any, order: list[int]) -> Any:
    """With its axes in another order."""
    if order == sorted(order):
        return signal
    if isinstance(signal, Logits) and order[:-2] == sorted(order[:-2]) and not signal.weights:
        tied = signal.tied and 1 / signal.tied
        return replace(signal, query=signal.key, key=signal.query, tied=tied)
    return moved(signal, lambda inside: reordered(inside, order))


@rule("softmax _softmax")
def _softmax(walk: Walk, node: fx.Node, signal: Signal, dim: int, *_: Any, **__: Any) -> Signal:
    if not isinstance(signal, Logits) or signal.weights or dim not in (-1, node.meta["val"].ndim - 1):
        raise InvalidInputError(
            "only over the keys of attention it has a rule; leave that of the last layer to the loss"
        )
    return replace(signal, weights=True)


@rule("masked_fill")
def _filled(walk: Walk, node: fx.Node, signal: Any, holds: Any, value: Any) -> Signal:
    """Keys that queries do not see."""
    if not isinstance(signal, Logits) or isinstance(holds, Signal) or float(value) > _UNSEEN:
        raise InvalidInputError("only logits of attention, where they become −∞, have a rule")
    return signal.masked(torch.where(holds, -math.inf, 0.0))


@rule("where")
def _chosen(walk: Walk, node: fx.Node, holds: Any, one: Any, other: Any) -> Signal:
    return _filled(walk, node, one, ~holds, other) if isinstance(one, Logits) else where(walk, node, holds, one, other)


def _logits(nodes: Any, pair: tuple[Any, Any], scale: float | None) -> Logits:
    """Products of queries and keys, each (samples, …, positions, coordinates), times a number."""
    for signal in pair:
        _require_tokens(signal)
    size, origins = nodes[0].meta["val"].shape[-1], [_origin(node) for node in nodes]
    (one, before), (other, behind) = origins
    if one is not other and dependent(pair[0].moments, pair[1].moments):
        raise InvalidInputError("its queries and keys are neither equal nor independent, which has no rule yet")
    tied = behind / before if one is other else None
    return Logits(*pair, size**-0.5 if scale is None else scale, size, tied, before * behind)


def _require_tokens(signal: Any) -> None:
    kinds = [{kind for kind, _ in axis} for axis in signal.moments.axes] if isinstance(signal, Signal) else [set()]
    if "s" not in kinds[0] or kinds[-2:] != [{"p"}, {"c"}] or len(signal.moments.grid) != 1:
        raise InvalidInputError("queries, keys and values must be (samples, heads, positions, coordinates)")


def _attended(walk: Walk, node: fx.Node, logits: Logits, value: Any, causal: bool = False) -> Signal:
    """What the softmax of logits makes of values."""
    unmasked = not causal and isinstance(logits.mask, float) and not logits.mask
    refuse_if(not logits.weights and not unmasked, "masked logits must be given a softmax before they weigh values")
    _require_tokens(value)
    mask, needs, tied = _mask(value.moments, logits.mask, causal), walk.needs[node], logits.tied
    query, key, scale, size = logits.query, logits.key, logits.scale, logits.size
    if scale * logits.before * size**0.75 < 1 or size == 1:
        walk.words[node] = "logits ∝ 1/d: numbers" if tied else "logits ∝ 1/d: 0"
        numbers = [scale * size * (tied or 0.0) * block for block in query.moments.second[1:]]
        weights = [torch.softmax(block + mask, dim=-1) if logits.weights else block for block in numbers]
        return moved(value, lambda inside: _weighted(inside, weights, needs), linear=True, carries=False)
    refuse_if(tied, "logits of equal queries and keys grow with the root of the width; divide them by it")
    for signal in (query, key):
        if not isinstance(signal, Unit) or not signal.gaussian:
            raise InvalidInputError("its queries and keys must come from matrices, so that logits are Gaussian")
    means = any(isinstance(part, Tensor) or part for part in value.moments.mean)  # of gains, offsets
    refuse_if(means, "its values have a mean, which has no rule yet; take them from a matrix")
    if not logits.weights:
        walk.words[node] = "logits ∝ 1/√d, which weigh as they are; many heads"
        return Mixed(_linear(query.moments, key.moments, value.moments, scale**2 * size, needs))
    walk.notes[AVERAGED] = None
    walk.words[node] = f"logits ∝ 1/√d: mean of {DRAWS:,} draws"
    return Mixed(_averaged(query.moments, key.moments, value.moments, (scale**2 * size, mask), needs))


def _origin(node: Any) -> tuple[Any, float]:
    """The value that this one holds in another order, and times which number."""
    times = 1.0
    while (kind := operation(node)) in REARRANGING or (kind in _MULTIPLES and isinstance(node.args[1], int | float)):
        if kind in _MULTIPLES:
            times = times * node.args[1] if kind == "aten.mul" else times / node.args[1]
        node = node.all_input_nodes[0]
    return node, times


def _mask(moments: Moments, given: Any, causal: bool) -> Tensor:
    """What is added to the logits, (positions, positions)."""
    (count,) = moments.grid
    mask = torch.zeros(count, count, dtype=moments.tangent.dtype, device=moments.tangent.device)
    if causal:
        mask.masked_fill_(torch.ones_like(mask).triu(1).bool(), -math.inf)
    if isinstance(given, Tensor) and given.numel() > 1:
        if given.shape[-2:].numel() != given.numel():
            raise InvalidInputError("a mask that differs between samples or heads has no rule yet")
        mask = mask + given.view(given.shape[-2:])
    return mask


def _trimmed(block: Any, need: int) -> Any:
    return block if block is None or need == 2 else same_positions(block, 2, 1)


def _weighted(value: Moments, weights: list[Tensor], needs: tuple[int, int]) -> Moments:
    """A(x) Σ A(y)ᵀ; what the gradient with respect to queries and keys adds vanishes."""
    left, right = weights
    ends = (left, right), (left, left), (right, right)
    second = [a @ block @ b.mT for block, (a, b) in zip(value.second, ends, strict=True)]
    parts = zip(value.mean, weights, strict=True)
    mean = tuple((a @ part[..., None])[..., 0] if isinstance(part, Tensor) else part for part, a in parts)
    tangent = _trimmed(left @ value.tangent @ right.mT, needs[0])
    return replace(value, second=tuple(map(_trimmed, second, (*needs, needs[1]))), tangent=tangent, mean=mean)


def _linear(q: Moments, k: Moments, v: Moments, gain: float, needs: tuple[int, int]) -> Moments:
    """Of Gaussian logits without a softmax: E G_ac G′_bd = gain·Σ_q(a, b) Σ_k(c, d) weighs Σ_v(c, d)."""

    def total(one: Tensor, other: Tensor) -> Tensor:
        return gain * (one * other).sum(dim=(2, 3), keepdim=True)

    second = [a * total(b, c) for a, b, c in zip(q.second, k.second, v.second, strict=True)]
    through = total(k.tangent, v.second[0]) + total(k.second[0], v.tangent)
    tangent = _trimmed(q.tangent * total(k.second[0], v.second[0]) + q.second[0] * through, needs[0])
    roots = v.roots | q.roots | k.roots
    return replace(v, second=tuple(map(_trimmed, second, (*needs, needs[1]))), tangent=tangent, roots=roots)


def _averaged(q: Moments, k: Moments, v: Moments, logits: tuple[float, Tensor], needs: tuple[int, int]) -> Moments:
    """Expectations over Gaussian logits of covariance `logits[0]`·Σ_q Σ_k, to which the mask is added."""
    gain, mask = logits
    roots = [[root_of(_joint(part, which)) for which in range(3)] for part in (q, k)]
    found: list[Any] = []
    for which, block in enumerate(v.second):
        inside = [part.second[which] for part in (q, k)]
        tangents = [part.tangent for part in (q, k, v)] if which == 0 else None
        rows, columns = _softmaxes(roots[0][which], roots[1][which], gain**0.5, mask, block)
        found.append(_expected((rows, columns), block, inside, tangents, gain))
    (cross, tangent), (left, _), (right, _) = found
    if v.same:
        cross, tangent = ((part + part.permute(1, 0, 3, 2)) / 2 for part in (cross, tangent))
        cross.diagonal(dim1=0, dim2=1).movedim(-1, 0).copy_(left.squeeze(1))
    second = _trimmed(cross, needs[0]), _trimmed(left, needs[1]), _trimmed(right, needs[1])
    return replace(v, second=second, tangent=_trimmed(tangent, needs[0]), roots=v.roots | q.roots | k.roots)


def _joint(part: Moments, which: int) -> Tensor:
    """The covariance of all positions of both inputs, (samples, other samples, 2·positions, 2·positions)."""
    cross, left, right = part.second
    if which:
        cross = left = right = part.second[which]
    shape = torch.broadcast_shapes(cross.shape, left.shape, right.shape)
    cross, left, right = (block.expand(shape) for block in (cross, left, right))
    return torch.cat([torch.cat([left, cross], dim=-1), torch.cat([cross.mT, right], dim=-1)], dim=-2)


def _softmaxes(
    q: Tensor, k: Tensor, scale: float, mask: Tensor, like: Tensor
) -> tuple[Callable[[Tensor], Tensor], ...]:
    """Functions from draws (draws, 2·positions, 2·positions) to the attention of both inputs."""
    count = like.shape[-1]

    def of(part: slice) -> Callable[[Tensor], Tensor]:
        rows, columns = q[..., part, :], k[..., :, part]
        return lambda draws: torch.softmax(scale * rows @ draws[:, None, None] @ columns + mask, dim=-1)

    return of(slice(count)), of(slice(count, None))


def _expected(attention: Any, block: Tensor, inside: list[Tensor], tangents: Any, gain: float) -> tuple[Tensor, Any]:
    """The mean over draws of A Σ_v A′ᵀ and, for pairs of inputs, of its tangent kernel."""
    count, generator = block.shape[-1], torch.Generator().manual_seed(0)
    step = max(1, min(DRAWS, _AT_ONCE // (block.numel() * 4)))
    kernel, tangent = torch.zeros_like(block), torch.zeros_like(block) if tangents else None
    for start in range(0, DRAWS, step):
        shape = min(step, DRAWS - start), 2 * count, 2 * count
        draws = torch.randn(shape, generator=generator, dtype=torch.float64).to(block)
        a, b = (part(draws) for part in attention)
        kernel += (a @ block @ b.mT).sum(dim=0) / DRAWS
        if tangents:
            of_q, of_k, of_v = tangents
            through = inside[0] * _slopes(a, b, block, of_k) + of_q * _slopes(a, b, block, inside[1])
            tangent += ((a @ of_v @ b.mT) + gain * through).sum(dim=0) / DRAWS
    return kernel, tangent


def _slopes(a: Tensor, b: Tensor, values: Tensor, inner: Tensor) -> Tensor:
    """Σ_cdef ∂A_c/∂G_e Σ_cd ∂A′_d/∂G′_f B_ef for each pair of rows, where ∂A_c/∂G_e = A_c (δ_ce − A_e)."""
    left, right, of_left, of_right = a @ values, b @ values.mT, a @ inner, b @ inner.mT
    both = a @ (inner * values) @ b.mT
    return both - a @ (right * of_right).mT - (left * of_left) @ b.mT + (left @ b.mT) * (of_left @ b.mT)
