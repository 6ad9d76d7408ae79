"""A lens and its subject: options in, a reading of a model and its batch out; looking changes nothing."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from skiplens.base import Progress, Randomness
from skiplens.base.arguments import Arguments, type_name
from skiplens.base.errors import CoupledSamplesError, InvalidInputError, NotExportableError, SkiplensError, refuse_if
from skiplens.base.memory import REDUCTION, free_bytes, require_fits
from skiplens.base.preserve_state import SelfChangeError, preserve_random_state, preserve_state, threads
from skiplens.graph.batch import TARGETS, Batch, as_batches, map_tensors, several_of, take
from skiplens.graph.dissect import dissect, other_backward
from skiplens.graph.functional import PureModel, is_batch_coupled, main_output
from skiplens.graph.inputs import copy_of, try_call
from skiplens.graph.loss import Loss, SeveralLosses, fitted, returned_loss_of
from skiplens.graph.network import ResidualNetwork
from skiplens.readings.reading import Reading

OPERATIONS, PER_SECOND = 1e12, 5e10
"""Floating operations that one lens may take, and those of a second on two cores: some twenty seconds."""
WORTH_THREADS = 2.5e9  # floating operations of a batch: below, threads wait for each other more than they compute
FASTER = {"cuda": 100.0}  # times as many a second, by device; of a GPU a cautious number
ENOUGH = 8  # samples up to which a lens counts the fewest passes that it can do with, not those that it usually takes
SUMMED = "The loss is the sum of those of its {count} targets."
RETURNED = "The data has no targets beside the inputs, so the loss is the one that the model returns."
UNREAD = "The data has no targets and the loss reads none; what is told of targets is about nothing."
HANDED = "The model takes its targets as an argument ({name}), so they were handed over with its inputs."


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model and the samples it is looked at with."""

    model: nn.Module
    batch: Batch
    name: str
    notes: tuple[str, ...] = ()
    """What was done to the model before it was looked at."""
    loss: Loss = None
    """A name or a function of outputs and targets; None: the one that fits the targets."""
    seen: Batch | None = None
    """All samples that were read on the way, for what needs no pass through the model."""
    data: Any = None
    """Where more batches come from; None: the batch is all there is."""
    asked: bool = False
    """Whether somebody asked for this number of samples, so that each lens takes all that it can afford."""
    allowed: float = OPERATIONS
    """Floating operations that one lens may take."""
    classes: tuple[str, ...] = ()
    """The names of the classes, where the data knows them."""
    counted: float | None = None
    """Floating operations of one forward pass of one sample, where they were counted before."""

    @property
    def network(self) -> ResidualNetwork:
        """The model with its residual blocks; found with all samples, or with few where a pass is costly."""
        count = self.afforded(GRAPH_PASSES, self.batch.samples, min(2, self.batch.samples))
        return self._taken_apart(self.batch.first(count))

    def network_of(self, batch: Batch) -> ResidualNetwork:
        """The model taken apart with the first samples, to take derivatives; found once for each number of them."""
        refuse_if(self._other_backward, self._other_backward, NotExportableError)
        return self._taken_apart(batch)

    def _taken_apart(self, batch: Batch) -> ResidualNetwork:
        if batch.samples not in self._networks:
            try:
                self._networks[batch.samples] = dissect(self.model, batch.inputs)
            except NotExportableError as error:
                self._networks[batch.samples] = error
        found = self._networks[batch.samples]
        if isinstance(found, NotExportableError):
            raise found
        return found

    @cached_property
    def _networks(self) -> dict[int, ResidualNetwork | NotExportableError]:
        return {}

    @cached_property
    def _other_backward(self) -> str:
        return other_backward(self.network)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))

    @cached_property
    def operations(self) -> float:
        """Floating operations of one forward pass of one sample; counted once, when a lens first asks."""
        return operations_of(self.model, self.batch) if self.counted is None else self.counted

    @property
    def threads(self) -> int:
        """As many threads as torch has, or one where a pass is not worth more."""
        return 1 if self.operations * self.batch.samples < WORTH_THREADS else torch.get_num_threads()

    def few(self, most: int, passes: float, least: int = 1, fewest: float = math.inf) -> tuple[Batch, tuple[str, ...]]:
        """The first samples, up to `most`, of which a lens can afford so many forward passes; what to tell if fewer.

        Up to eight are taken where a lens can do with the `fewest` passes.
        """
        wanted = self.batch.samples if self.asked else min(most, self.batch.samples)
        least = max(min(wanted, least), self.afforded(fewest, min(wanted, ENOUGH), 0))
        count = max(least, int(self.afforded(passes, wanted, least) * REDUCTION.get()))
        count = self.at_least_together(count, wanted)
        return self.batch.first(count), cut_note(count, wanted)

    def at_least_together(self, count: int, wanted: int) -> int:
        """So many samples, but two instead of one where they depend on each other: batch norm refuses a single one."""
        return min(2, wanted) if count == 1 and self.model.training and self.coupled else count

    @cached_property
    def coupled(self) -> bool:
        """Whether a sample's output depends on others; where that cannot be asked they are taken to belong together."""
        with suppress(Exception), preserve_state(self.model):
            few = self.batch.first(self.afforded(GRAPH_PASSES, min(4, self.batch.samples), min(2, self.batch.samples)))
            return is_batch_coupled(PureModel(self.model, {}, {}), few.inputs)
        return True

    def afforded(self, passes: float, most: int, least: int = 1) -> int:
        """As many, up to `most`, as so many forward passes of each are within what a lens may take."""
        return affordable(self.operations, passes, most, least, self.allowed)

    def fitted_loss(self, batch: Batch) -> tuple[Loss, Batch]:
        """The loss of these samples, and they with targets in the form that it takes."""
        with preserve_state(self.model):
            outputs = main_output(try_call(self.model, batch.arguments()))
        return fitted(outputs, batch, self.loss)


class Lens(ABC):
    """A way to look; a subclass is a frozen dataclass of its options."""

    name: ClassVar[str]
    question: ClassVar[str]
    vectors: ClassVar[int] = 0
    """Numbers that it holds for each parameter beside the model, at least: gradients, directions, copies."""

    @abstractmethod
    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress) -> Reading:
        """Take the reading; the model is as before afterwards, also after an error."""


def require_room(lens: type[Lens], model: nn.Module, every: Iterable[type[Lens]], free: int) -> None:
    """Refuse a lens that would exhaust the memory, and say which of `every` one would not."""
    size = sum(parameter.numel() * max(4, parameter.element_size()) for parameter in model.parameters())
    fitting = ",".join(other.name for other in every if other.vectors * size <= free)
    what = f"The lens {lens.name}, which holds {lens.vectors} numbers for each parameter beside the model,"
    require_fits(lens.vectors * size, what, f"What fits is --lens {fitting}, or lenses=… in inspect.", free)


def operations_of(model: nn.Module, batch: Batch) -> float:
    """Floating operations of one forward pass of one sample, those of matrix products and convolutions."""
    few = batch.first(2)  # batch norm in training mode refuses a single sample
    with preserve_state(model), torch.no_grad(), _Counter() as counter:
        few.arguments().call(model)
    return counter.total / few.samples


class _Counter(TorchDispatchMode):
    """Adds up floating operations by torch's own formulas; torch's own counter loads its compiler first: a second."""

    total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        self.total += 0 if count is None else count(*args, **(kwargs or {}), out_val=value)
        return value


def affordable(operations: float, passes: float, most: int, least: int = 1, allowed: float = OPERATIONS) -> int:
    """As many samples, up to `most`, as leave `passes` forward passes within the operations that a lens may take."""
    return max(least, min(most, int(allowed / max(1.0, operations * passes))))


def cut_note(looked_at: int, wanted: int) -> tuple[str, ...]:
    """What to tell where fewer samples were looked at than usual."""
    note = (
        f"A pass through this model is costly, so {looked_at} instead of {wanted} samples were looked at. {MORE_TIME}"
    )
    return (note,) if looked_at < wanted else ()


MORE_TIME = "More are taken where there is more time: --minutes, or inspect(…, minutes=…)."

COARSE = (torch.bfloat16, torch.float16)
"""With 8 or 11 bits a second derivative, a small singular value or a condition number is rounding."""

SEEN = 512  # samples that are kept of what was read, for what is cheap
PASSES, FEWEST_PASSES = 10, 3
"""Forward passes that each lens may take which takes all samples of a subject, and those that it takes at least."""
GRAPH_PASSES = 4 * PASSES  # so costly that a graph is made of two samples: each number of them has its own


def prepared(
    model: nn.Module, data: Any, samples: int, name: str, loss: Loss = None, allowed: float = OPERATIONS
) -> Subject:
    """The first samples that can be afforded, and the model or a float32 copy of one in half precision.

    The model is called once, so that inputs which do not fit are one error here and not one of each lens.
    """
    named = getattr(getattr(data, "dataset", data), "classes", ())  # as data sets of torchvision have them, and ours
    classes = tuple(map(str, named)) if isinstance(named, list | tuple) else ()
    given, (data, loss, handed) = data, with_targets(model, data, loss)
    allowed *= next((FASTER.get(tensor.device.type, 1.0) for tensor in model.parameters()), 1.0)
    with threads(1):
        seen = take(data, samples, SEEN)
    batch = seen.first(samples)
    types = sorted({type_name(tensor.dtype) for tensor in _tensors(model) if tensor.dtype in COARSE})
    notes: tuple[str, ...] = ()
    if types:
        model = _in_float32(model)
        batch = batch.map(lambda tensor: tensor.float() if tensor.dtype in COARSE else tensor)
        notes = (f"The model is in {' and '.join(types)}; a copy of it in float32 was measured.",)
    with threads(1):  # for two samples
        try:
            model, told = settled(model, batch)
        except InvalidInputError as error:
            read_as_two = type(given) is tuple and [type(part) for part in given] == [tuple, tuple]
            hint = TWO_BATCHES if read_as_two else OWN_CASTS if types else ""
            raise (InvalidInputError(f"{error} {hint}") if hint else error) from error.__cause__
        whole = Subject(model, batch, name, allowed=allowed)
        batch, cut = whole.few(samples, PASSES, fewest=FEWEST_PASSES)
    more = None if types else data  # it comes in the precision of the model itself
    told = (*notes, *handed, *told, *cut)
    subject = Subject(model, batch, name, told, loss, seen, more, False, allowed, classes, whole.operations)
    with threads(subject.threads), preserve_state(model):
        try_call(model, batch.arguments())
    return subject


TWO_BATCHES = (
    "The data, a tuple of two tuples, was read as two batches; one batch of several inputs and several targets is "
    "written as [(inputs, targets)]."
)
OWN_CASTS = (
    "It is a copy in float32 that was called, since half precision is too coarse to measure in; where the model casts "
    "to half precision itself, write x.to(self.weight.dtype) there, or hand in a model without such casts."
)
TOGETHER = (
    "The model takes these {count} samples together only, as nodes of one graph; with the first 2 of them it said: "
    "{said}. Hand over several such sets as one batch, with a set in each entry of the first axis."
)
SETTLED = (
    "The model changes its own weights when it is called, as layers with a largest norm do; a copy of it was measured "
    "after one such call, which the next ones leave as it is."
)


def settled(model: nn.Module, batch: Batch) -> tuple[nn.Module, tuple[str, ...]]:
    """The model, or a copy after one call where the first changes its parameters and the next does not; what to tell.

    The model is called with two samples, and refused where that fails or where each call changes it again.
    """
    whole, batch = batch, batch.first(2)
    try:
        with preserve_state(model):
            try_call(model, batch.arguments())
        return model, ()
    except SelfChangeError:
        fresh = copy_of(model, "it is measured on a copy because it changes its own weights when it is called")
    except InvalidInputError as error:
        require_apart(model, whole, error)
        raise
    with preserve_random_state():
        try_call(fresh, batch.arguments())
    with preserve_state(fresh):
        try_call(fresh, batch.arguments())
    return fresh, (SETTLED,)


def require_apart(model: nn.Module, batch: Batch, error: Exception) -> None:
    """Say that samples belong together, where the model takes all of the batch and for two has this error."""
    with suppress(InvalidInputError), preserve_state(model):
        try_call(model, batch.arguments())
        error = CoupledSamplesError(TOGETHER.format(count=batch.samples, said=error.__cause__))
    if isinstance(error, CoupledSamplesError):
        raise error


def with_decoder_inputs(model: nn.Module, data: Any) -> Any:
    """The data; for an encoder with a decoder that makes its inputs from labels these are made here, as it would."""
    make = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if make is None or isinstance(data, Iterator):
        return data

    def completed(batch: Batch) -> Batch:
        if not isinstance(batch.inputs, dict) or "decoder_input_ids" in batch.inputs or batch.targets.ndim != 2:
            return batch
        return Batch({**batch.inputs, "decoder_input_ids": make(labels=batch.labelled().targets)}, batch.targets)

    return as_batches(data).map(completed)


def as_one_argument(model: nn.Module, data: Any) -> Any:
    """The data; a dict whose keys are no arguments of the model is the one argument of it, as in `forward(batch)`."""
    taken = signature(model.forward).parameters
    if isinstance(data, Iterator) or not taken or any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return data
    inputs = take(data, 2).inputs
    if not isinstance(inputs, dict) or set(inputs) & set(taken):
        return data
    try:
        with preserve_state(model):
            try_call(model, Arguments.of((inputs,)))
    except SkiplensError:
        return data
    return as_batches(data).map(lambda batch: Batch((map_tensors(Tensor.clone, batch.inputs),), batch.targets))


def with_targets(model: nn.Module, data: Any, loss: Loss = None) -> tuple[Any, Loss, tuple[str, ...]]:
    """The data, with its targets among the inputs where only then the model returns what they fit; loss; what to tell.

    Of several targets for each sample the loss is the sum of theirs, unless one is given that takes them all.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidInputError("No lens sees into compiled TorchScript. Hand in the nn.Module that it came from.")
    data = as_one_argument(model, with_decoder_inputs(model, data))
    known = list(signature(model.forward).parameters)
    name = next((name for name in known if name in (*TARGETS, "y")), None)
    if isinstance(data, Iterator):
        return data, loss, ()
    few = take(data, 2)
    several = several_of(few)
    if several is not None:
        plain = as_batches(data).map(lambda batch: Batch(batch.inputs, batch.targets.clone()))
        told = (SUMMED.format(count=len(several.forms)),) * (not callable(loss))
        return plain, SeveralLosses(several, loss), told
    if loss is None and not few.targets.numel() and _returns_loss(model, few):
        return data, returned_loss_of, (RETURNED,)
    if callable(loss) and not few.targets.numel() and _reads_no_targets(model, few, loss):
        return as_batches(data).map(lambda batch: Batch(batch.inputs, torch.zeros(batch.samples))), loss, (UNREAD,)
    if name is None:
        return data, loss, ()

    def handed(batch: Batch) -> Batch:
        inputs, labels = batch.inputs, getattr(batch.inputs, "labels", None)
        given = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
        named = given if isinstance(given, dict) else dict(zip(known, given, strict=False))
        return Batch({**named, name: batch.targets if labels is None else labels}, batch.targets)

    if not few.targets.numel() or _fits(model, few, loss) or not _fits(model, handed(few), loss):
        return data, loss, ()
    return as_batches(data).map(handed), loss, (HANDED.format(name=name),)


def _returns_loss(model: nn.Module, batch: Batch) -> bool:
    """Whether the model returns its loss beside other tensors, as those of Hugging Face do."""
    try:
        with preserve_state(model), torch.no_grad():
            outputs = try_call(model, batch.arguments())
    except SkiplensError:
        return False
    return len(outputs) > 1 and "loss" in outputs and not outputs["loss"].ndim


def _reads_no_targets(model: nn.Module, batch: Batch, loss: Any) -> bool:
    """Whether a loss is the same number whatever the targets are."""
    with suppress(Exception), preserve_state(model), torch.no_grad():  # what is wrong with the loss is told later
        outputs = batch.arguments().call(model)
        first, second = (loss(outputs, torch.full((batch.samples,), value)) for value in (0.0, 1.0))
        return bool(first.numel() == 1 and first.isfinite() and first == second)
    return False


def _fits(model: nn.Module, batch: Batch, loss: Loss) -> bool:
    """Whether the model can be called, and its outputs and the targets belong together."""
    try:
        return bool(Subject(model, batch, "", loss=loss).fitted_loss(batch))
    except SkiplensError as error:
        return isinstance(error, SelfChangeError)  # of which it is told later


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _in_float32(model: nn.Module) -> nn.Module:
    needed, free = sum(4 * tensor.numel() for tensor in _tensors(model)), free_bytes(next(model.parameters()).device)
    require_fits(needed, "A copy of the model in float32", "Fewer layers or a device with more memory would fit.", free)
    fresh = copy_of(model, "half precision is too coarse to measure in", "Hand in model.float(). ")
    for tensor in _tensors(fresh):
        tensor.grad = None
        if tensor.dtype in COARSE:
            tensor.data = tensor.data.float()
    return fresh
