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
from skiplens.kernels.limit import signals
from skiplens.kernels.limit.combine import moved, several
from skiplens.kernels.limit.draws import root_of
from skiplens.kernels.limit.gaussian import LARGEST_ERROR
from skiplens.kernels.limit.rules import Walk, affine, rule
from skiplens.kernels.limit.several import Several, evaluated, require_directions

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
    channels = f"{_ROUNDS * _CHANNELS:,} channels are drawn"
    walk.notes[f"The batch of batch norm is the example of {walk.batch} inputs, of which {channels}."] = None
    eps, needs, axes = rest[-1], walk.needs[node], len(signal.moments.axes)

    def normalised(part: Any) -> Any:
        if isinstance(part, signals.Concatenation):
            return signals.Concatenation(tuple((width, normalised(inner)) for width, inner in part.parts))
        if part.moments.grid and not part.moments.full:
            raise InvalidInputError("it averages over positions that were flattened before, which has no rule yet")
        if isinstance(part, signals.Data):
            raise InvalidInputError("it normalises features of the inputs, which are not alike; give normalised inputs")
        unit = part if isinstance(part, signals.Unit) and not part.gaussian else signals.Unit(part.moments)
        norm = _Norm(unit, unit.moments, walk.batch * math.prod(part.moments.grid), eps)
        walk.words[node] = f"batch of {walk.batch} in about {norm.directions:.0f} directions"
        variable, rough = signals.Unit(norm.of_many_directions(needs)), 1 / norm.directions
        if isinstance(part, signals.Unit):
            at_once = Normalised((variable,), lambda at: at[id(variable.latent)], rough=rough, norm=norm)
            return (
                signals.Mixed(None, several=at_once)
                if unit.gaussian
                else signals.Mixed(*norm.corrected(at_once, variable.latent))
            )
        require_directions(rough, rough)
        walk.notes["Behind a sum of different kinds the batch is taken for one of many directions."] = None
        return moved(part, lambda _: variable.latent, linear=True, carries=False)

    return affine(walk, normalised(signal), node, (weight, bias), axes), None, None, None, None


@dataclass(frozen=True, eq=False)
class _Norm:
    """The norm of a coordinate; its moments as matrices over all inputs and their positions."""

    unit: signals.Unit  # what is normalised: Gaussian, or a function of one Gaussian variable
    inside: signals.Moments  # its moments
    batch: int  # the last of all inputs
    eps: float

    def matrix(self, block: Tensor) -> Tensor:
        count, size = len(self.inside.grid), len(block) * math.prod(self.inside.grid)
        return block.permute(0, *range(2, 2 + count), 1, *range(2 + count, 2 + 2 * count)).reshape(size, size)

    def block(self, matrix: Tensor, full: bool = True) -> Tensor:
        grid, count = self.inside.grid, len(self.inside.grid)
        order = 0, 1 + count, *range(1, 1 + count), *range(2 + count, 2 + 2 * count)
        found = matrix.view(-1, *grid, len(self.inside.tangent), *grid).permute(order)
        return (found if full else signals.same_positions(found, 2, count)).contiguous()

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

    def of_many_directions(self, needs: tuple[int, int]) -> signals.Moments:
        """The moments behind the norm if all channels have the same deviation."""
        kernel, tangent = (self.block(part * self.scale, needs[0] == 2) for part in self.centred)
        own = self.block(self.centred[0] * self.scale).diagonal(dim1=0, dim2=1).movedim(-1, 0)
        own = (own if needs[1] == 2 else signals.same_positions(own, 1, len(self.inside.grid))).contiguous()
        x, y = self.inside.mean
        if isinstance(x, Tensor):
            size = self.batch // math.prod(self.inside.grid)
            x, y = ((part - x[-size:].mean()) * self.scale.sqrt() for part in (x, y))
        second = kernel, own.unsqueeze(1), own.unsqueeze(0)
        return replace(self.inside, second=second, tangent=tangent, mean=(x, y))

    @cached_property
    def roots(self) -> tuple[Tensor, Tensor]:
        """Of the covariance: of the batch, so that its draws are the same beside any others, and of these given it."""
        kernel, batch = self.matrix(self.unit.latent.second[0]), slice(-self.batch, None)
        of_batch = kernel[:, batch] @ torch.linalg.pinv(root_of(kernel[batch, batch]), rtol=1e-7, hermitian=True)
        return of_batch, root_of((kernel - of_batch @ of_batch.T)[: -self.batch, : -self.batch])

    def corrected(self, of: Several, limit: signals.Moments) -> tuple[signals.Moments, float]:
        """The `limit` of many directions of a function, with what drawn channels add; and the error."""
        totals, squares, error = list[Any]([0.0] * 3), list[Any]([0.0] * 3), 0.0
        for seed in range(_ROUNDS):
            for which, part in enumerate(self._correction(of, seed)):
                totals[which], squares[which] = totals[which] + part / _ROUNDS, squares[which] + part**2 / _ROUNDS
        second, tangent = (self.block(part) for part in totals[:2])
        own, mean = second.diagonal(dim1=0, dim2=1).movedim(-1, 0), totals[2].view(len(second), *limit.grid)
        added = second, own.unsqueeze(1), own.unsqueeze(0), tangent
        # positions that nothing reads are left out where the limit has none
        both = zip((*limit.second, limit.tangent), added, strict=True)
        *found, tangent = (part + signals.same_positions(more, 2, part.ndim - 2) for part, more in both)
        for total, square, size in zip(totals, squares, (found[0], tangent), strict=False):
            scatter = ((square - total**2).clamp_min(0).max() / (_ROUNDS - 1)).sqrt()
            error = max(error, float(scatter / (size.abs().max() + torch.finfo(size.dtype).tiny)))
        if not error <= LARGEST_ERROR:
            wrong = f"wrong by about {100 * error:.0f} %; take a larger example, or evaluation mode"
            raise InvalidInputError(f"drawn channels do not tell its kernel: {wrong}")
        means = limit.mean[0] + mean.unsqueeze(1), limit.mean[1] + mean.unsqueeze(0)
        return replace(limit, second=tuple(found), tangent=tangent, mean=means), error

    def _correction(self, of: Several, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """What drawn channels add to second moments, tangent kernel and means of the limit of many directions."""
        (of_batch, rest), rate, batch = self.roots, self.scale.sqrt(), slice(-self.batch, None)
        generator = torch.Generator().manual_seed(seed)

        def drawn(size: int) -> Tensor:
            half = torch.randn(_CHANNELS // 2, size, generator=generator, dtype=rest.dtype).T.to(rest)
            return torch.cat([half, -half], dim=1)

        places = torch.rand(_CHANNELS, generator=generator, dtype=rest.dtype).to(rest)
        z = of_batch @ drawn(self.batch)  # one column per channel
        z[: -self.batch] += rest @ drawn(len(rest))
        z, bend = _at_points(several(self.unit), z, places, [])
        z = z - z[batch].mean(dim=0)
        deviation = (z[batch].square().mean(dim=0) + self.eps).sqrt()
        u, like = z / deviation, of.latents[0].latent.variances[0]
        numbers = [
            torch.as_tensor(part, dtype=z.dtype, device=z.device).expand(like.shape).reshape(-1, 1)
            for part, _ in of.numbers
        ]
        (f, slopes), (g, others) = (_at_points(of, part, places, numbers) for part in (u, z * rate))
        tangent = self._through(slopes / deviation, bend, [u]) - self._through(others * rate, bend, [])
        return (f @ f.T - g @ g.T) / _CHANNELS, tangent / _CHANNELS, (f - g).mean(dim=1)

    def _through(self, slopes: Tensor, bend: Tensor, kept: list[Tensor]) -> Tensor:
        """The sum over channels of M T Mᵀ for the tangent kernel T before it.

        With u = (h − mean h)/s and h = f(z), du = (dh − mean dh − u mean(u dh))/s: M takes what each of `kept`, and 1,
        has in common with dh over the batch away from dh = f′(z) dz. Without an f the first is taken from T at once.
        """
        batch, inner = slice(-self.batch, None), self.centred[1]
        if not self.unit.gaussian:
            kept, inner = [torch.ones_like(slopes), *kept], self.matrix(self.unit.latent.tangent)
        reads = [part[batch] * bend[batch] / self.batch for part in kept]
        seen, direct = [inner[:, batch] @ read for read in reads], slopes * bend
        total = (direct @ direct.T) * inner
        for part, along in zip(kept, seen, strict=True):
            shares = ((read * along[batch]).sum(dim=0) for read in reads)
            both = sum(share * other for share, other in zip(shares, kept, strict=True))
            outer = (slopes * part) @ (direct * along - slopes * both / 2).T
            total = total - outer - outer.T
        return total


def _at_points(of: Any, z: Tensor, places: Tensor, numbers: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A function of one variable and its slope."""
    values, (slopes,) = evaluated(of, (z,), places, numbers)
    return values[..., 0], slopes[..., 0, 0]


@dataclass(frozen=True, eq=False)
class Normalised(Several):
    """A function of a coordinate behind the norm; its one variable is the limit of many directions."""

    norm: _Norm = field(kw_only=True)

    @cached_property
    def expected(self) -> tuple[signals.Moments, float]:
        """The moments of the coordinate, and their standard error relative to equal inputs."""
        latent = self.latents[0].latent
        unit = signals.Unit(latent, None, lambda u: self.function({id(latent): u}))
        limit, error = self.paired(self) if self.vectors or self.numbers else unit.expected
        found, scatter = self.norm.corrected(self, limit)
        return found, max(error, scatter)

    def across(self) -> None:
        """Not known: channels have deviations of their own, which are no variables of the function."""
