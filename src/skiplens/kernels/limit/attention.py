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

from skiplens.base.errors import InvalidInputError
from skiplens.graph.operations import REARRANGING, operation
from skiplens.kernels.limit.combine import moved
from skiplens.kernels.limit.draws import root_of
from skiplens.kernels.limit.rules import Walk, rule
from skiplens.kernels.limit.signals import Mixed, Moments, Signal, Unit, dependent, same_positions

DRAWS = 2048  # of the logits, the same for all pairs
_AT_ONCE = 2**21
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
    for signal in (query, key, value):
        kinds = [{kind for kind, _ in axis} for axis in signal.moments.axes] if isinstance(signal, Signal) else [set()]
        if kinds[0] != {"s"} or kinds[-2:] != [{"p"}, {"c"}] or len(signal.moments.grid) != 1:
            raise InvalidInputError("queries, keys and values must be (samples, heads, positions, coordinates)")
    if dropout_p:
        raise InvalidInputError("dropout of attention weights has no rule yet; set it to 0")
    mask = _mask(value.moments, attn_mask, is_causal)
    size = node.all_input_nodes[0].meta["val"].shape[-1]
    scale = size**-0.5 if scale is None else scale
    tied = _origin(node.args[0]) is _origin(node.args[1])
    if not tied and dependent(query.moments, key.moments):
        raise InvalidInputError("its queries and keys are neither equal nor independent, which has no rule yet")
    needs = walk.needs[node]
    if scale * size**0.75 < 1 or size == 1:
        walk.words[node] = "logits ∝ 1/d: numbers" if tied else "logits ∝ 1/d: 0"
        logits = [scale * size * block if tied else torch.zeros_like(block) for block in query.moments.second[1:]]
        weights = [torch.softmax(block + mask, dim=-1) for block in logits]
        return moved(value, lambda inside: _weighted(inside, weights, needs), linear=True)
    if tied:
        raise InvalidInputError("logits of equal queries and keys grow with the root of the width; divide them by it")
    for signal in (query, key):
        if not isinstance(signal, Unit) or not signal.gaussian:
            raise InvalidInputError("its queries and keys must come from matrices, so that logits are Gaussian")
    walk.notes[AVERAGED] = None
    walk.words[node] = f"logits ∝ 1/√d: mean of {DRAWS:,} draws"
    return Mixed(_averaged(query.moments, key.moments, value.moments, (scale**2 * size, mask), needs))


def _origin(node: Any) -> Any:
    while operation(node) in REARRANGING:
        node = node.all_input_nodes[0]
    return node


def _mask(moments: Moments, given: Any, causal: bool) -> Tensor:
    """What is added to the logits, (positions, positions)."""
    (count,) = moments.grid
    mask = torch.zeros(count, count, dtype=moments.tangent.dtype, device=moments.tangent.device)
    if causal:
        mask.masked_fill_(torch.ones_like(mask).triu(1).bool(), -math.inf)
    if given is not None:
        if not isinstance(given, Tensor) or given.numel() != count**2:
            raise InvalidInputError("a mask that differs between samples or heads has no rule yet")
        given = given.view(count, count)
        mask = mask.masked_fill(~given, -math.inf) if given.dtype == torch.bool else mask + given
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
    trimmed = (_trimmed(block, need) for block, need in zip(second, (needs[0], needs[1], needs[1]), strict=True))
    tangent = _trimmed(left @ value.tangent @ right.mT, needs[0])
    return replace(value, second=tuple(trimmed), tangent=tangent, mean=mean)


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
    # values have mean 0 unless gains or offsets were added behind their matrix
    if any(isinstance(part, Tensor) or part for part in v.mean):
        raise InvalidInputError("its values have a mean, which has no rule yet; take them from a matrix")
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
