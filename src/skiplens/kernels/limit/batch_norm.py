"""The rules of batch norm, of which training mode couples all inputs of a batch.

A channel of an infinitely wide layer is one Gaussian draw over the whole batch. In training mode it is divided by its
own deviation over the batch, which is a number only where the batch has many directions, 1/Σλ² for the shares λ of the
covariance; with fewer it differs from channel to channel, and gradients through it count: about 1/directions of both
kernels. So the norm and the function behind it are averaged over drawn channels, as a correction of that limit.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.limit.combine import moved
from skiplens.kernels.limit.draws import root_of, values_of
from skiplens.kernels.limit.gaussian import LARGEST_ERROR
from skiplens.kernels.limit.rules import Walk, affine, rule
from skiplens.kernels.limit.signals import (
    Concatenation,
    Data,
    Mixed,
    Moments,
    Several,
    Unit,
    pair_of_several,
    same_positions,
)

_ROUNDS, _CHANNELS = 16, 1024  # of drawn channels; rounds tell the error


@rule("_native_batch_norm_legit_no_training")
def _frozen_batch_norm(walk: Walk, node: fx.Node, signal: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    """In evaluation mode: gains and offsets of each channel."""
    mean, variance, _, eps = rest
    scale = (variance.double() + eps).rsqrt()
    gain = scale if weight is None else scale * weight.double()
    offset = -mean.double() * gain + (0.0 if bias is None else bias.double())
    return affine(walk, signal, node, (gain, offset), len(signal.moments.axes)), None, None


@rule("_native_batch_norm_legit_functional _native_batch_norm_legit")
def _batch_norm(walk: Walk, node: fx.Node, signal: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    """In training mode. The batch is the example, the last of all inputs."""
    drawn = f"{_ROUNDS * _CHANNELS:,} channels are drawn"
    walk.notes[f"The batch of batch norm is the example of {walk.batch} inputs, of which {drawn}."] = None
    eps, needs, axes = rest[-1], walk.needs[node], len(signal.moments.axes)

    def normalised(part: Any) -> Any:
        if isinstance(part, Concatenation):
            return Concatenation(tuple((width, normalised(inner)) for width, inner in part.parts))
        if part.moments.grid and not part.moments.full:
            raise InvalidInputError("it averages over positions that were flattened before, which has no rule yet")
        if isinstance(part, Data):
            raise InvalidInputError("it normalises features of the inputs, which are not alike; give normalised inputs")
        norm = _Norm(part.moments, walk.batch * math.prod(part.moments.grid), eps)
        if not isinstance(part, Unit) or not part.gaussian:
            walk.notes["Behind a sum of different kinds the batch is taken for one of many directions."] = None
            return moved(part, lambda _: norm.of_many_directions(needs), linear=True)
        walk.words[node] = f"batch of {walk.batch} in about {norm.directions:.0f} directions"
        variable, rough = Unit(norm.of_many_directions(needs)), 1 / norm.directions
        return Mixed(None, Normalised((variable,), lambda u, *_: u[0], rough=rough, norm=norm))

    return affine(walk, normalised(signal), node, (weight, bias), axes), None, None, None, None


@dataclass(frozen=True, eq=False)
class _Norm:
    """The norm of a coordinate; its moments as matrices over all inputs and their positions."""

    inside: Moments
    batch: int  # the last of them
    eps: float

    def matrix(self, block: Tensor) -> Tensor:
        count, size = len(self.inside.grid), len(block) * math.prod(self.inside.grid)
        return block.permute(0, *range(2, 2 + count), 1, *range(2 + count, 2 + 2 * count)).reshape(size, size)

    def block(self, matrix: Tensor, full: bool = True) -> Tensor:
        grid, count = self.inside.grid, len(self.inside.grid)
        order = 0, 1 + count, *range(1, 1 + count), *range(2 + count, 2 + 2 * count)
        found = matrix.view(-1, *grid, len(self.inside.tangent), *grid).permute(order)
        return (found if full else same_positions(found, 2, count)).contiguous()

    @cached_property
    def centred(self) -> list[Tensor]:
        """The covariance and the tangent kernel without their means over the batch."""
        found = [self.matrix(part) for part in (self.inside.second[0], self.inside.tangent)]
        means = [part[:, -self.batch :].mean(dim=1, keepdim=True) for part in found]
        return [part - rows - rows.T + rows[-self.batch :].mean() for part, rows in zip(found, means, strict=True)]

    @cached_property
    def scale(self) -> Tensor:
        """1/variance over the batch."""
        return 1 / (self.centred[0].diagonal()[-self.batch :].mean() + self.eps)

    @cached_property
    def directions(self) -> float:
        """1/Σλ² for the shares λ of the directions that the batch has."""
        block = self.centred[0][-self.batch :, -self.batch :]
        return float(block.trace() ** 2 / block.square().sum().clamp_min(torch.finfo(block.dtype).tiny)) or math.inf

    def of_many_directions(self, needs: tuple[int, int]) -> Moments:
        """The moments behind the norm if all channels have the same deviation."""
        kernel, tangent = (self.block(part * self.scale, needs[0] == 2) for part in self.centred)
        own = self.block(self.centred[0] * self.scale).diagonal(dim1=0, dim2=1).movedim(-1, 0)
        own = (own if needs[1] == 2 else same_positions(own, 1, len(self.inside.grid))).contiguous()
        x, y = self.inside.mean
        if isinstance(x, Tensor):
            size = self.batch // math.prod(self.inside.grid)
            x, y = ((part - x[-size:].mean()) * self.scale.sqrt() for part in (x, y))
        second = kernel, own.unsqueeze(1), own.unsqueeze(0)
        return replace(self.inside, second=second, tangent=tangent, mean=(x, y))

    @cached_property
    def roots(self) -> tuple[Tensor, Tensor]:
        """Of the covariance: of the batch, so that its draws are the same beside any others, and of these given it."""
        kernel, batch = self.matrix(self.inside.second[0]), slice(-self.batch, None)
        of_batch = kernel[:, batch] @ torch.linalg.pinv(root_of(kernel[batch, batch]), rtol=1e-7, hermitian=True)
        return of_batch, root_of((kernel - of_batch @ of_batch.T)[: -self.batch, : -self.batch])


@dataclass(frozen=True, eq=False)
class Normalised(Several):
    """A function of a coordinate behind the norm; its one variable is the limit of many directions."""

    norm: _Norm = field(kw_only=True)

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of the coordinate, and their standard error relative to equal inputs."""
        unit = Unit(self.latents[0].latent, None, lambda u: self.function([u], [], []))
        limit, error = pair_of_several(self, self) if self.vectors or self.numbers else unit.expected
        totals, squares = list[Any]([0.0] * 3), list[Any]([0.0] * 3)
        for seed in range(_ROUNDS):
            for which, part in enumerate(self._correction(seed)):
                totals[which], squares[which] = totals[which] + part / _ROUNDS, squares[which] + part**2 / _ROUNDS
        second, tangent = (self.norm.block(part) for part in totals[:2])
        own, mean = second.diagonal(dim1=0, dim2=1).movedim(-1, 0), totals[2].view(len(second), *limit.grid)
        added = second, own.unsqueeze(1), own.unsqueeze(0), tangent
        # positions that nothing reads are left out where the limit has none
        both = zip((*limit.second, limit.tangent), added, strict=True)
        *found, tangent = (part + same_positions(more, 2, part.ndim - 2) for part, more in both)
        for total, square, size in zip(totals, squares, (found[0], tangent), strict=False):
            scatter = ((square - total**2).clamp_min(0).max() / (_ROUNDS - 1)).sqrt()
            error = max(error, float(scatter / (size.abs().max() + torch.finfo(size.dtype).tiny)))
        if not error <= LARGEST_ERROR:
            raise InvalidInputError(f"drawn channels do not tell its kernel: wrong by about {100 * error:.0f} %")
        means = limit.mean[0] + mean.unsqueeze(1), limit.mean[1] + mean.unsqueeze(0)
        return replace(limit, second=tuple(found), tangent=tangent, mean=means), error

    def _correction(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """What drawn channels add to second moments, tangent kernel and means of the limit of many directions.

        With u = (z − mean z)/s, du_i = (dz_i − mean dz − u_i mean(u dz))/s: both means leave a gradient.
        """
        norm, (of_batch, rest), rate = self.norm, self.norm.roots, self.norm.scale.sqrt()
        generator, batch = torch.Generator().manual_seed(seed), slice(-norm.batch, None)

        def drawn(size: int) -> Tensor:
            half = torch.randn(_CHANNELS // 2, size, generator=generator, dtype=rest.dtype).T.to(rest)
            return torch.cat([half, -half], dim=1)

        places = torch.rand(_CHANNELS, generator=generator, dtype=rest.dtype).to(rest)
        z = of_batch @ drawn(norm.batch)  # one column per channel
        z[: -norm.batch] += rest @ drawn(len(rest))
        z = z - z[batch].mean(dim=0)
        deviation = (z[batch].square().mean(dim=0) + norm.eps).sqrt()
        u, like = z / deviation, self.latents[0].latent.variances[0]
        numbers = [torch.as_tensor(part).to(z).expand(like.shape).reshape(-1, 1) for part, _ in self.numbers]
        sides = (values_of((self, numbers), (part,), places, slice(None)) for part in (u, z * rate))
        (f, (slopes,)), (g, (others,)) = sides
        slopes, others, inner = slopes / deviation, others * rate, norm.centred[1]
        along = inner[:, batch] @ u[batch] / norm.batch
        outer = (slopes * u) @ (slopes * (along - u * (along[batch] * u[batch]).mean(dim=0) / 2)).T
        tangent = (slopes @ slopes.T - others @ others.T) * inner - outer - outer.T
        return (f @ f.T - g @ g.T) / _CHANNELS, tangent / _CHANNELS, (f - g).mean(dim=1)
