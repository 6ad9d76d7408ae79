"""A loss over data, checked once: it repeats, it is finite, and it is known how its mini-batches add up."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from skiplens.base import Float, InvalidInputError, Progress, SkiplensError, budget_bytes, give_back, require_least
from skiplens.base.arguments import type_name
from skiplens.base.identity import fingerprint
from skiplens.curvature.convolution import PlainConvolutions
from skiplens.graph import functional
from skiplens.graph.batch import Batch, Batches, as_batches, concatenate
from skiplens.graph.inputs import named_tensors, samples_of
from skiplens.graph.loss import Combination, LossRule, returned_loss_of


@dataclass(frozen=True)
class Objective:
    """A model, its parameters in the dtype to compute in, and the loss of its outputs."""

    pure: functional.PureModel
    rule: LossRule
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.pure.device

    def leaves(self) -> list[Tensor]:
        """Fresh leaves of the autograd graph that share the chosen parameters' memory, in their order."""
        return list(self.pure.leaves().values())

    def outputs(self, leaves: list[Tensor], batch: Batch) -> Any:
        """What the model returns for a batch with `leaves` in place of its chosen parameters.

        Each call works on its own copy of the buffers: running statistics stay as they are, and a graph that is kept
        does not see the next call change what it has saved.
        """
        arguments = batch.arguments()
        chosen = dict(zip(self.pure.parameters, leaves, strict=True))
        replaced = {alias: chosen.get(name, value) for alias, (name, value) in self.pure.aliases.items()}
        for name in functional.places(self.pure.model, "_buffers").keys() & replaced.keys():  # a call may make more
            replaced[name] = replaced[name].clone()
        try:
            with PlainConvolutions():
                return functional.call_with(self.pure.model, replaced, *arguments.copies())
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, SkiplensError | torch.OutOfMemoryError):
                raise
            raise InvalidInputError(f"The model cannot be called with these inputs ({arguments}): {error}") from error

    def total(self, outputs: Any, batch: Batch) -> Tensor:
        """The batch's part of the loss before the division by all shares; refused where it is no number."""
        return require_scalar(self._taken(self.rule.total, outputs, batch.targets))

    def plain(self, outputs: Any, targets: Tensor) -> Tensor:
        """What the loss itself gives for outputs and targets; refused where it is no number."""
        return require_scalar(self._taken(self.rule.plain, outputs, targets))

    @staticmethod
    def _taken(loss: Callable[[Any, Tensor], Any], outputs: Any, targets: Tensor) -> Any:
        try:
            return loss(outputs, targets)
        except (TypeError, ValueError, IndexError) as error:  # a RuntimeError may be torch's word for other things
            if isinstance(error, SkiplensError):
                raise
            came = f"targets of type {type_name(targets.dtype)} and shape {tuple(targets.shape)}"
            raise InvalidInputError(f"The loss cannot be taken of the outputs and {came}: {error}") from error

    def total_of(self, batch: Batch, piece: int | None = None) -> float:
        """The same as a number, from the inputs, so many samples at a time; all of them if `piece` is None."""
        if piece is not None and piece < batch.samples:
            starts = range(0, batch.samples, piece)
            return math.fsum(self.total_of(batch.select(slice(start, start + piece))) for start in starts)
        with torch.no_grad():
            outputs = self.outputs(self.leaves(), batch)
            self.rule.require_fit(outputs, batch.targets)
            return self.total(outputs, batch).item()

    def prepared(self, batch: Batch) -> Batch:
        """The batch on the model's device, its floating tensors in the dtype that is computed in."""
        return batch.to(self.device, self.dtype)


def objective(
    model: nn.Module, rule: LossRule, parameters: functional.ParameterChoice, dtype: torch.dtype | None
) -> Objective:
    """The objective with the parameters in `dtype`; by default in theirs, or float32 if they have fewer bits."""
    pure = functional.pure_model(model, parameters)
    dtype = pure.dtype if dtype is None else dtype
    if not dtype.is_floating_point:
        raise InvalidInputError(f"dtype={dtype} cannot be differentiated in; use torch.float32 or torch.float64.")
    dtype = torch.promote_types(dtype, torch.float32)
    chosen = {name: tensor.to(dtype) for name, tensor in pure.parameters.items()}
    buffers = {name: (name, buffer) for name, buffer in functional.places(model, "_buffers").items()}
    aliases = {
        alias: (name, chosen.get(name, value.to(dtype) if value.is_floating_point() else value))
        for alias, (name, value) in {**pure.aliases, **buffers}.items()
    }
    return Objective(functional.PureModel(model, chosen, aliases), rule, dtype)


def require_scalar(value: Any) -> Tensor:
    """The loss, refused unless it is one finite number that gradients flow through."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        came = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InvalidInputError(
            f"The loss of a batch is {came}; a scalar tensor is wanted. Reduce it in the loss, e.g. with "
            "reduction='mean' or .mean()."
        )
    if value.is_meta:
        raise InvalidInputError("The loss has no data (device meta); make model and data with numbers in them.")
    if not bool(torch.isfinite(value.detach()).all()):
        raise InvalidInputError(
            f"The loss of a batch is {value.item()}: look for parameters, inputs or targets that are not finite, "
            "or for a logarithm or division by zero in the loss."
        )
    return value.reshape(())


@dataclass(frozen=True)
class LossProblem:
    """An objective and its data, with what one pass over them shows."""

    objective: Objective
    batches: Batches
    samples: int
    sizes: tuple[int, ...]
    loss: float
    divisor: float
    ordered: bool  # whether a second pass gave the same batches in the same order
    splits: bool
    """Whether a batch may be cut: its samples do not depend on each other, neither in the model nor in the loss."""

    def pieces(self, size: int) -> Iterator[Batch]:
        """The batches, cut into pieces of equal length of at most `size` samples."""
        for batch in self.batches:
            prepared, start = self.objective.prepared(batch), 0
            for count in self._cut(prepared.samples, size):
                yield prepared if count == prepared.samples else prepared.select(slice(start, start + count))
                start += count

    def piece_sizes(self, size: int) -> list[int]:
        """The samples of each piece."""
        return [piece for count in self.sizes for piece in self._cut(count, size)]

    def _cut(self, samples: int, size: int) -> list[int]:
        pieces = -(-samples // max(1, size)) if self.splits else 1
        return [samples // pieces + (i < samples % pieces) for i in range(pieces)]


PIECE_BYTES = 96 * 2**20
"""On a CPU pieces with graphs of this size are as quick as whole batches, and what a product adds stays small."""
_COMPARED = 256  # samples in which it is seen how a loss adds up, where batches may be cut


Needs = Callable[[Objective, Batch], tuple[float, float]]  # bytes for each sample at once, and beside them


def _samples_at_once(objective: Objective, first: Batch, splits: bool, memory: int | None, needs: Needs) -> int | None:
    """How many samples may go through the model at once without derivatives; None if batches may not be cut.

    A budget is refused that does not hold what will be done with one sample, or with a batch that may not be cut.
    """
    at_least = 1 if splits else first.samples
    if memory is not None:
        each, beside = needs(objective, first)
        require_least(memory, each * at_least + beside, f"{at_least} sample{'s' * (at_least > 1)} at once")
    if not splits:
        return None
    room = min(PIECE_BYTES, budget_bytes(objective.device, memory))
    return max(1, room // functional.saved_bytes_per_sample(objective.pure, samples_of(first.inputs)))


def make_problem(
    objective: Objective, data: Any, progress: Progress, model_returns_loss: bool, memory: int | None, needs: Needs
) -> LossProblem:
    """The problem, after two passes over the data that must give the same loss; in pieces for which there is room."""
    batches = loss_batches(data, model_returns_loss)
    model_returns_loss = model_returns_loss or objective.rule.plain is returned_loss_of
    first = objective.prepared(next(iter(batches)))
    first = first if model_returns_loss else first.labelled()
    rule, splits = objective.rule, not model_returns_loss and _may_be_cut(objective, first)
    if rule.combination == "unknown":
        seen = first.first(_COMPARED) if splits else first
        rule = replace(rule, combination=found_combination(objective, seen, model_returns_loss))
        objective = replace(objective, rule=rule)
    splits = splits and rule.combination != "whole"
    piece = _samples_at_once(objective, first, splits, memory, needs)
    totals, shares, sizes = [], [], []
    for number, batch in enumerate(batches, start=1):
        batch = objective.prepared(batch)
        totals.append(objective.total_of(batch, piece))
        shares.append(rule.share(batch.targets))
        sizes.append(batch.samples)
        progress("loss of the data", number, number)
    if rule.combination == "whole" and len(sizes) > 1:
        raise InvalidInputError(
            f"The loss is neither a mean nor a sum over samples, so those of {len(sizes)} batches do not add up to "
            "one. Hand over all data as one batch, or a loss that is a mean or a sum over samples."
        )
    ordered, divisor = repeats_in_order(objective, batches, totals, piece), sum(shares) or 1.0
    loss = sum(totals) / divisor
    return LossProblem(objective, batches, sum(sizes), tuple(sizes), loss, divisor, ordered, splits)


def _may_be_cut(objective: Objective, first: Batch) -> bool:
    try:
        return not functional.is_batch_coupled(objective.pure, first.inputs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False  # the model does not take a few samples alone


def found_combination(objective: Objective, batch: Batch, model_returns_loss: bool) -> Combination:
    """Whether the loss of some samples is the mean or the sum of their losses, or neither ("whole").

    The loss of all samples is compared with those of the first one and of the rest; one sample is taken three times.
    Where the model itself returns the loss, the same samples twice must give the same loss or twice as much.
    """

    def plain(outputs: Any, targets: Tensor) -> float:
        return objective.plain(outputs, targets).item()

    def loss_at(outputs: Any, index: list[int]) -> float:
        def rows(tensor: Tensor) -> Tensor:
            return tensor[index] if tensor.ndim and tensor.shape[0] == batch.samples else tensor

        return plain(tree_map_only(Tensor, rows, outputs), batch.targets[index])

    with torch.no_grad():
        if model_returns_loss:
            few = batch.first(4)
            pair = (few, concatenate([few, few]))
            once, value = (plain(objective.outputs(objective.leaves(), part), part.targets) for part in pair)
            mean, total = once, 2 * once
        else:
            outputs = objective.outputs(objective.leaves(), batch)
            index = list(range(batch.samples)) if batch.samples > 1 else [0, 0, 0]
            value, first, rest = (loss_at(outputs, part) for part in (index, index[:1], index[1:]))
            mean, total = (first + (len(index) - 1) * rest) / len(index), first + rest
    tolerance = 1e-4 * abs(value)
    if abs(value - mean) <= tolerance:  # a loss of zero is both; then it is taken for a mean, as most are
        return "mean"
    return "sum" if abs(value - total) <= tolerance else "whole"


def repeats_in_order(objective: Objective, batches: Batches, totals: list[float], piece: int | None = None) -> bool:
    """Whether a second pass gives the batches in the same order; refused where their sum differs from that of `totals`.

    A loader that only shuffles is fine where samples do not depend on each other: the sum is the same.
    """

    def same(left: float, right: float, scale: float) -> bool:
        return abs(left - right) <= torch.finfo(objective.dtype).eps ** 0.75 * scale

    again = [objective.total_of(objective.prepared(batch), piece) for batch in batches]
    if same(sum(again), sum(totals), sum(abs(total) for total in totals)):
        pairs = zip(again, totals, strict=False)
        return len(again) == len(totals) and all(same(new, old, abs(new)) for new, old in pairs)
    batch = objective.prepared(next(iter(batches)))
    first, second = objective.total_of(batch, piece), objective.total_of(batch, piece)
    before, after = (sum(losses) / max(1, len(losses)) for losses in (totals, again))
    if not same(first, second, abs(first)) or (len(again) == len(totals) and _is_still(batches)):
        raise SkiplensError(
            f"Two calls of the model with the same batch give different losses ({before:.6g} and {after:.6g}): "
            f"{functional.why_restless(objective.pure.model)}"
        )
    raise InvalidInputError(
        f"Two passes over data give different losses ({before:.6g} and {after:.6g} a batch of "
        f"{len(totals)} and {len(again)}), though the model repeats itself: the loader gives other samples each time, "
        "e.g. by random augmentation or by shuffling. Pass the batches of one pass, list(loader), or switch that off."
    )


def _is_still(batches: Batches) -> bool:
    """Whether two passes give the same samples in the same order; then it is the model that differs, if seldom."""
    first, second = (fingerprint(pair for batch in batches for pair in named_tensors(batch)) for _ in range(2))
    return first == second


def loss_batches(data: Any, model_returns_loss: bool) -> Batches:
    """The batches of `data`; a one-shot iterator is refused, since every product may read the data again.

    Where the model returns its own loss, a batch may be the mapping of its keyword arguments alone, and the targets
    of a pair are handed to it as `labels`.
    """
    if isinstance(data, Iterator):
        raise InvalidInputError(
            f"data is a one-shot iterator ({type(data).__name__}), but every product may read the data again. "
            "Pass a list of batches or a DataLoader instead."
        )
    if not model_returns_loss:
        return as_batches(data)
    return Batches(_Labelled(as_batches([data] if isinstance(data, Mapping) else data).source))


@dataclass(frozen=True)
class _Labelled:
    """Pairs of arguments and targets, made again at each pass; what is no pair is refused later, where all are."""

    source: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        for entry in self.source:
            if isinstance(entry, Mapping):  # the first tensor counts the samples where there are no labels
                tensors = [value for value in entry.values() if isinstance(value, Tensor) and value.ndim > 0]
                yield dict(entry), entry.get("labels", next(iter(tensors), None))
            elif isinstance(entry, Batch | tuple | list) and len(entry) == 2 and isinstance(entry[0], Mapping):
                yield {"labels": entry[1], **entry[0]}, entry[1]
            else:
                yield entry


GIVEN_BACK = 2**28  # bytes


@dataclass(frozen=True)
class FlatOrder:
    """The order in which parameters follow each other in a vector: by name, each in its row-major order."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        """Entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes.values()]

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " params"]:
        """The tensors of all parameters joined to one vector; refused if names or shapes differ."""
        wanted, came = self.shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wrong = sorted(name for name in {*wanted, *came} if wanted.get(name) != came.get(name))
        if wrong:
            name = wrong[0]
            raise InvalidInputError(
                f"The tensors to join do not match the parameters at {len(wrong)} names, first {name!r}: shape "
                f"{came.get(name, 'missing')} came, {wanted.get(name, 'no such parameter')} was wanted. Hand over one "
                "tensor for each name in `names`, shaped like the parameter."
            )
        return torch.cat([tensors[name].reshape(-1) for name in self.shapes])

    def unflatten(self, vector: Float[Tensor, " params"]) -> dict[str, Tensor]:
        """The parts of a vector by the name of their parameter, each in its shape; they share the vector's memory."""
        if vector.shape != (self.size,):
            raise InvalidInputError(
                f"A tensor of shape {tuple(vector.shape)} came; a vector of {self.size} entries was wanted, "
                "one for each chosen parameter."
            )
        parts = zip(self.shapes.items(), vector.split(self.counts), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def split_columns(self, block: Float[Tensor, "params probes"]) -> list[Tensor]:
        """For each parameter its share of every column, shaped (probes, *shape)."""
        parts = zip(self.shapes.values(), block.split(self.counts), strict=True)
        return [part.T.reshape(part.shape[1], *shape) for shape, part in parts]

    def add_columns(self, block: Float[Tensor, "params probes"], parts: list[Tensor], anew: bool = False) -> None:
        """Add to a block what `split_columns` takes apart, or put it there `anew`; the list of parts is emptied."""
        parts.reverse()
        put = Tensor.copy_ if anew else Tensor.add_
        freed = 0
        for rows in block.split(self.counts):
            put(rows, parts.pop().reshape(block.shape[1], -1).T)
            freed += rows.nbytes
            if freed > GIVEN_BACK:  # else what the parts took would lie beside the block that they went to
                give_back()
                freed = 0
