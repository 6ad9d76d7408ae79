"""What a network is asked to do, measured with one forward pass, and one more where the inputs look odd."""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.preserve_state import preserve_state
from skiplens.base.randomness import Randomness
from skiplens.edits.structure import drop_rates
from skiplens.graph.batch import Batch, tensors_in
from skiplens.graph.functional import PureModel, is_batch_coupled, main_output
from skiplens.graph.inputs import samples_of
from skiplens.graph.loss import NAMED, Loss, fitted, loss_name, loss_rule, scalar_loss
from skiplens.graph.pieces import outputs_of, pieces_of
from skiplens.task.reading import TaskReading

FORMS = {"CrossEntropyLoss": "classes", "NLLLoss": "log_probabilities", "BCEWithLogitsLoss": "binary"}
FORMS |= {"MSELoss": "numbers", "cross_entropy": "classes", "nll_loss": "log_probabilities", "mse_loss": "numbers"}
FORMS |= {"binary_cross_entropy_with_logits": "binary"}
"""What the losses of torch take, by the name of their class or function."""
LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NEVER = math.exp(-30)  # a probability below rounding
STEEP = 1e-7  # largest slope of a loss that is as low as it gets
LARGE, SMALL, COMMON = 10.0, 1e-3, 0.99  # sizes of inputs, and shares of their power in common, that are unusual
DROPPED = 0.8  # of the values: what is left of each has a noise of twice its size
FEW = 3  # samples, which may have all in common by chance
ENOUGH, MOST, NEIGHBOURS, SHUFFLES, FEATURES = 256, 512, 5, 200, 2048


def measure_task(
    model: nn.Module,
    batch: Batch,
    loss: Loss = None,
    *,
    seen: Batch | None = None,
    seed: int = 0,
    memory: int | None = None,
) -> TaskReading:
    """The data and the loss of `model` on `batch` at the start; the model is left as it was.

    Args:
        model: Any module; it is called in its own mode, batch norms without statistics in that of training.
        batch: Inputs and targets.
        loss: As for `inspect`: a name, a function, or None for the one that fits the targets.
        seen: More samples, which are looked at without the model; the batch itself if not given.
        seed: Of the shuffles that say what chance does.
        memory: Bytes for passes through the model; half of what is free if not given. Samples that do not fit at once
            go through in pieces.
    """
    seen = batch if seen is None else seen
    with preserve_state(model), torch.no_grad():
        for norm in model.modules():  # one without statistics does not normalise before the first step, but in it
            if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.num_batches_tracked == 0:
                norm.train(norm.training or batch.samples > 1)
        pieces = pieces_of(model, batch, memory, "a pass through the model")
        entry = _Entry()
        returned = entry.call(model, pieces)
        outputs = main_output(returned)
        loss, fit = fitted(outputs, batch, loss)
        task = _Task(loss, _form(loss, outputs, fit.targets), outputs, fit.targets)
        scored = task.form in ("binary", "classes")
        squashed = scored and SQUASHED.get((task.form, _last_operation(model, batch)))
        fields = {
            "loss_name": loss_name(loss),
            "form": task.form,
            "loss": task.taken(returned),
            "no_answer": task.no_answer(),
            "guess": task.guess() if task.form != "own" or (returned is outputs and outputs.ndim) else math.nan,
            "answers": squashed or task.answers(),
            "output_size": task.output_size(),
            "classes": task.classes,
            "head": entry.head(model),
            **_inputs(entry, model, pieces, batch, outputs),
            "mixes": len(outputs.shape[:1]) == 1 and len(outputs) == batch.samples > 1 and _mixes(model, batch),
        }
    rates = drop_rates(model)
    heavy = tuple(name for name, rate in rates.items() if rate >= DROPPED)
    fields |= {"dropouts": heavy, "dropped": max(rates.values(), default=0.0)}
    return TaskReading(samples=batch.samples, seen=seen.samples, **fields, **_data(seen, task, seed))


SQUASHED = {("binary", "Sigmoid"): "probabilities", ("classes", "Sigmoid"): "sigmoids"}
SQUASHED |= {(form, "Relu"): "cut_scores" for form in ("binary", "classes")}
"""What outputs are, by the form of the loss and by the operation that the model ends in."""


def form_of(loss: Loss) -> str:
    """What a loss takes; ``own`` where nothing is known of it."""
    kind = NAMED[loss] if isinstance(loss, str) else type(loss) if isinstance(loss, nn.Module) else loss
    known = str(getattr(kind, "__module__", "")).startswith("torch") and getattr(loss, "reduction", "mean") == "mean"
    return FORMS.get(getattr(kind, "__name__", ""), "own") if known else "own"


def _form(loss: Loss, outputs: Tensor, targets: Tensor) -> str:
    """What a loss takes; of a function of one's own that gives what a loss of torch gives, what that one takes."""
    if form_of(loss) != "own" or not callable(loss):
        return form_of(loss)
    scores = torch.linspace(-40, 40, outputs.numel(), device=outputs.device).sin().view_as(outputs).to(outputs.dtype)
    tolerance = torch.finfo(outputs.dtype).eps ** 0.5  # half of the digits
    for name in NAMED:
        with suppress(Exception), warnings.catch_warnings():  # a loss that does not take these targets is another one
            warnings.simplefilter("ignore")
            pairs = [[float(loss_rule(own).plain(size * scores, targets)) for own in (loss, name)] for size in (1, 3)]
            if all(abs(own - known) <= tolerance * abs(known) for own, known in pairs):
                return form_of(name)
    return "own"


@dataclass
class _Entry:
    """Looks at the first module with a weight matrix, and at the last linear one, while the model is called."""

    power: float = 0.0  # sum of squares of what comes to the first
    entries: int = 0
    sums: Any = 0.0  # over samples; NaN where there is no axis of them
    samples: int = 0
    waiting: int = 0  # samples of the call whose first module is not reached yet
    last: tuple[str, Tensor] | None = None
    heads: set[str | None] = field(default_factory=set)  # the last of each call if its outputs are the model's

    def call(self, model: nn.Module, pieces: list[Batch]) -> Any:
        """What the model returns for all samples."""
        for name, module in model.named_modules():
            owned = any(parameter.ndim > 1 for parameter in module.parameters(recurse=False))
            if owned and not isinstance(module, torch.jit.ScriptModule):  # which takes no hooks
                module.register_forward_hook(self._watch(name))  # `preserve_state` takes it away

        def called(piece: Batch) -> Any:
            self.waiting, self.last = piece.samples, None
            returned = piece.arguments().call(model)
            self.waiting = 0
            name, output = self.last or (None, None)
            self.heads.add(name if output is not None and torch.equal(output, main_output(returned)) else None)
            return returned

        return outputs_of(pieces, called)

    def _watch(self, name: str) -> Callable[..., None]:
        def look(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            given = next(tensors_in(arguments), None)
            if given is not None and given.is_floating_point() and self.waiting:
                self.see(given, self.waiting)
                self.waiting = 0
            if isinstance(module, LINEAR):
                self.last = name, output

        return look

    def see(self, given: Tensor, samples: int) -> None:
        """Add up the squares, and the samples where there is an axis of them."""
        values = given.double()
        self.power, self.entries = self.power + float(values.square().sum()), self.entries + values.numel()
        self.sums = self.sums + (values.sum(0) if values.shape[:1] == (samples,) else math.nan)
        self.samples += samples

    @property
    def size(self) -> float:
        """Root mean square; NaN where nothing was seen."""
        return (self.power / self.entries) ** 0.5 if self.entries else math.nan

    @property
    def common(self) -> float:
        """The share of power in the mean over samples; NaN where they have no axis, or there are few."""
        if not isinstance(self.sums, Tensor) or self.samples <= FEW or not self.power > 0:
            return math.nan
        return float((self.sums / self.samples).square().mean()) / (self.power / self.entries)

    def head(self, model: nn.Module) -> tuple[str, ...]:
        """The parameters of the last linear module, where its outputs are those of the model."""
        (name,) = self.heads if len(self.heads) == 1 else (None,)
        own = () if name is None else model.get_submodule(name).named_parameters(recurse=False)
        return tuple(f"{name}.{parameter}".lstrip(".") for parameter, _ in own)


@dataclass
class _Task:
    """A loss with the outputs and targets of a batch."""

    loss: Loss
    form: str
    outputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        shape = self.outputs.shape
        as_torch = self.targets.shape in (shape, shape[:1] + shape[2:])
        self.axis = 1 if as_torch else self.outputs.ndim - 1  # of the classes; language models have them last
        self.classes = shape[self.axis] if self.form in ("classes", "log_probabilities") else 0
        self.plain = loss_rule(self.loss).plain

    def taken(self, outputs: Any) -> float:
        return float(scalar_loss(self.plain(outputs, self.targets), loss_name(self.loss)))

    def no_answer(self) -> float:
        equal = -math.log(self.classes) if self.form == "log_probabilities" else 0.0
        return math.nan if self.form == "own" else self.taken(torch.full_like(self.outputs, equal))

    def output_size(self) -> float:
        scores = self.outputs.double()
        scores = scores - scores.mean(self.axis, keepdim=True) if self.classes else scores
        return float(scores.square().mean().sqrt())

    def answers(self) -> str:
        rows, tolerance = self.outputs.double(), torch.finfo(self.outputs.dtype).eps ** 0.5  # half of the digits
        for name, values in (("probabilities", rows), ("log_probabilities", rows.exp())):
            sums = values.sum(self.axis) if self.classes > 1 else values.new_zeros(1)
            if bool((values >= 0).all()) and bool(((sums - 1).abs() <= tolerance).all()):
                return name
        return "scores"

    def guess(self) -> float:
        """The loss of the best answer that is the same for all samples; NaN where no search finds it.

        The search starts from the exact answer for plain losses, and moves on for class weights and the like.
        """
        constant = self._start().to(self.outputs)
        if self.form == "log_probabilities":  # not any scores are an answer
            return self.taken(constant.expand_as(self.outputs))
        for dtype in (torch.float64, self.outputs.dtype):  # not every loss and device takes the first
            with suppress(Exception):  # an own loss may refuse an answer that is the same for all
                return self._least(constant.to(dtype).requires_grad_())
        return math.nan

    def _least(self, constant: Tensor) -> float:
        def closure() -> Tensor:
            with torch.enable_grad():
                value = scalar_loss(self.plain(constant.expand_as(self.outputs), self.targets), "")
                (constant.grad,) = torch.autograd.grad(value, constant)
            return value

        closure()
        slope = float(torch.as_tensor(constant.grad).abs().max())
        if slope > STEEP:  # else the first step would be the last, and making it loads torch's compiler
            how: Any = {"max_iter": 50, "tolerance_grad": STEEP, "line_search_fn": "strong_wolfe"}
            torch.optim.LBFGS([constant], **how).step(closure)
        found, left = float(closure()), float(torch.as_tensor(constant.grad).abs().max())
        return found if self.form != "own" or left <= 1e-3 * slope else math.nan  # an own loss may have no least

    def _start(self) -> Tensor:
        targets = self.targets
        if self.form == "own":
            return torch.zeros_like(self.outputs[:1])
        if not self.classes:
            mean = targets.double().mean(0, keepdim=True)
            return mean.logit(eps=NEVER) if self.form == "binary" else mean
        if targets.is_floating_point():
            counts = targets.double().movedim(self.axis, -1).reshape(-1, self.classes).sum(0)
        else:
            counting = targets[targets != getattr(self.loss, "ignore_index", -100)]
            counts = counting.flatten().bincount(minlength=self.classes).double()
        scores = (counts / counts.sum()).clamp_min(NEVER).log()
        return scores.reshape([-1 if axis == self.axis else 1 for axis in range(self.outputs.ndim)])


def _mixes(model: nn.Module, batch: Batch) -> bool:
    """Whether samples of a batch change each other's answers in evaluation mode; no where none is the same twice."""
    noise = torch.Generator().manual_seed(0)  # samples may agree in all that the model mixes, such as a black margin

    def noisy(tensor: Tensor) -> Tensor:
        drawn = torch.randn(tensor.shape, generator=noise).to(tensor)
        return tensor + drawn * tensor.std() if tensor.is_floating_point() else tensor

    few, pure = samples_of(batch.first(4).map_inputs(noisy).inputs), PureModel(model.eval(), {}, {})
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        return False
    with suppress(Exception):  # a model may refuse so few samples, or the same one twice
        answer = pure({}, few)
        compared = answer.shape[1:2] == (few.count,) != pure({}, few.take(slice(0, 1))).shape[1:2]  # all with all
        return not compared and torch.equal(answer, pure({}, few)) and is_batch_coupled(pure, few)
    return False


def _last_operation(model: nn.Module, batch: Batch) -> str:
    """The last operation of the model, but for changes of shape, as autograd calls it."""
    with torch.enable_grad():
        node = main_output(batch.first(2).arguments().call(model)).grad_fn
    while node is not None and node.name().startswith(("View", "Reshape", "Unsafe", "Squeeze", "Unsqueeze", "Select")):
        node = node.next_functions[0][0]
    return "" if node is None else node.name().partition("Backward")[0]


def _inputs(entry: _Entry, model: nn.Module, pieces: list[Batch], batch: Batch, outputs: Tensor) -> dict[str, Any]:
    """The fields of the reading that speak of the numbers that come in; none where all of them are tokens."""
    sizes = {place: t.numel() for place, t in enumerate(tensors_in(batch.inputs)) if t.is_floating_point()}
    if not sizes:
        return {}
    place = max(sizes, key=sizes.__getitem__)
    parts = [list(tensors_in(piece.inputs))[place] for piece in pieces]
    whole = [len(part) for part in parts] == [piece.samples for piece in pieces]
    if not whole or not all(part.isfinite().all() for part in parts):
        return {}
    if not entry.entries:
        for part in parts:
            entry.see(part, len(part))
    entries = sum(part.numel() for part in parts)
    mean = sum(float(part.double().sum()) for part in parts) / entries

    def spread(middle: float) -> float:
        return math.sqrt(sum(float((part.double() - middle).square().sum()) for part in parts) / entries)

    change = math.nan
    if not SMALL <= entry.size <= LARGE or entry.common > COMMON:
        middle = mean if entry.common > COMMON else 0.0
        scale = spread(middle)

        def moved(piece: Batch) -> Tensor:
            own = list(tensors_in(piece.inputs))[place]
            changed = piece.map_inputs(lambda tensor: (tensor - middle) / scale if tensor is own else tensor)
            return main_output(changed.arguments().call(model))

        difference, deviation = outputs_of(pieces, moved) - outputs, float(outputs.double().std(correction=0))
        change = float(difference.double().square().mean().sqrt()) / deviation if deviation > 0 else math.inf
    same = [(part == parts[0][:1]).all(0) for part in parts]
    return {
        "low": min(float(part.min()) for part in parts),
        "high": max(float(part.max()) for part in parts),
        "mean": mean,
        "std": spread(mean),
        "constant": float(torch.stack(same).all(0).double().mean()),
        "entry_size": entry.size,
        "entry_common": entry.common,
        "change": change,
    }


def _data(seen: Batch, task: _Task, seed: int) -> dict[str, Any]:
    """The fields of the reading that speak of the samples alone."""
    targets = seen.targets.detach().cpu()
    labelled = task.classes > 0 and targets.ndim == 1 and not targets.is_floating_point()
    groups: dict[bytes, list[int]] = {}
    for index, key in enumerate(_keys(seen)):
        groups.setdefault(key, []).append(index)
    shared = [targets[group] for group in groups.values() if len(group) > 1]
    differing = [group for group in shared if bool((group != group[:1]).any())]
    fields: dict[str, Any] = {
        "counts": targets[targets >= 0].bincount(minlength=task.classes) if labelled else torch.zeros(0).long(),
        "copies": sum(len(group) - 1 for group in shared),
        "contradictions": sum(len(group) for group in differing),
    }
    if labelled or task.form == "numbers":
        cost = _entropy if labelled else _spread
        whole = cost(targets)
        fields["floor"] = sum(map(cost, differing)) / whole if whole else 0.0
        fields["neighbours"] = _neighbours(seen, targets, labelled, seed)
    return fields


def _entropy(labels: Tensor) -> float:
    """The least cross-entropy of one answer to all `labels`, summed over them."""
    counts = labels.unique(return_counts=True)[1].double()
    return float(-(counts * (counts / len(labels)).log()).sum())


def _spread(targets: Tensor) -> float:
    """The least squared error of one answer to all `targets`, summed over them."""
    return float((targets.double() - targets.double().mean(0)).square().sum())


def _keys(batch: Batch) -> Iterator[bytes]:
    """A key for the inputs of each sample: the same for the same numbers. Zero has no sign; NaN equals nothing."""
    tensors = [tensor.detach().cpu() for tensor in tensors_in(batch.inputs) if tensor.shape[:1] == (batch.samples,)]
    flat = [tensor.reshape(batch.samples, -1) for tensor in tensors]
    missing = torch.stack([part.isnan().any(1) for part in flat]).any(0) if flat else torch.ones(batch.samples)
    rows = [(part if part.dtype is torch.bool else part + 0).contiguous().view(torch.uint8).numpy() for part in flat]
    own = (str(index).encode() if missing[index] else b"" for index in range(batch.samples))
    digest = partial(hashlib.blake2b, digest_size=16)
    return (key + b"".join(digest(row[index]).digest() for row in rows) for index, key in enumerate(own))


def _neighbours(seen: Batch, targets: Tensor, labelled: bool, seed: int) -> float:
    """How much more alike than chance the targets of neighbouring inputs are, in standard deviations of shuffles."""
    seen, targets = seen.first(MOST), targets[:MOST]
    inputs = seen.inputs
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or seen.samples < ENOUGH:
        return math.nan
    flat = inputs.detach().flatten(1)
    flat = flat[:, :: max(1, flat.shape[1] // FEATURES)].cpu().double()
    distances = torch.cdist(flat, flat).nan_to_num().fill_diagonal_(math.inf)
    near = torch.zeros_like(distances).scatter_(1, distances.topk(NEIGHBOURS, largest=False).indices, 1.0)
    rows = targets.double().reshape(len(targets), -1)
    centred = rows - rows.mean(0)
    alike = (rows == rows.T).double() if labelled else centred @ centred.T
    generator = Randomness(seed).torch()
    orders = [torch.randperm(len(alike), generator=generator) for _ in range(SHUFFLES)]
    chance = torch.stack([(near * alike[order][:, order]).sum() for order in orders])
    return float(((near * alike).sum() - chance.mean()) / chance.std()) if bool(chance.std() > 0) else math.nan
