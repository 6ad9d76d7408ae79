"""What could be changed in a network so that it trains better: changes as data, each with what calls for it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from skiplens.base.errors import SkiplensError
from skiplens.base.preserve_state import preserve_state
from skiplens.edits.measured_starts import HEAD
from skiplens.edits.remedies import apply_remedy, code_of
from skiplens.edits.structure import SATURATING
from skiplens.graph.batch import Batch, tensors_in
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.dissect import find_residual_blocks
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import Loss
from skiplens.readings.finding import Remedy, listed
from skiplens.signal.layers import LayerStates, layer_states
from skiplens.task.measure import measure_task
from skiplens.task.reading import TaskReading
from skiplens.trainability.optimizers import OptimizerChoice, clipped, warmed_up
from skiplens.zoo.weight_laws import WeightLayer

Keep = Literal["outputs", "architecture"] | None
"""What must stay: the function that the network starts as, its architecture (only values change), or nothing."""

SLOTS = ("inputs", "outputs", "structure", "start", "branches", "head", "training")
"""What a change acts on, in the order in which changes are made; two changes of one slot exclude each other."""

_LEVELS: Mapping[Keep, int] = {"outputs": 0, "architecture": 1, None: 2}
LEAST_LAYERS = 4  # of equal shape: fewer need no shortcut
USUAL_INPUTS = 0.3, 3.0  # root mean squares, and means in standard deviations, that need no standardising
CLIP = 1.0
WARM_UP = 10  # a tenth of the steps


@dataclass(frozen=True)
class Change:
    """One change of a network or of its training.

    Attributes:
        name: What it is called.
        slot: What it acts on.
        words: What is done, as an order.
        reason: What was measured that calls for it.
        remedies: Changes of the model, in order.
        training: Changes the optimizer; None where it stays.
        training_code: That as code to paste.
    """

    name: str
    slot: str
    words: str
    reason: str
    remedies: tuple[Remedy, ...] = ()
    training: Callable[[OptimizerChoice], OptimizerChoice] | None = None
    training_code: str = ""

    def with_seed(self, seed: int) -> "Change":
        """The same change; what it draws is drawn with another seed."""
        drawn = [
            replace(remedy, parameters={**remedy.parameters, "seed": seed}) if "seed" in remedy.parameters else remedy
            for remedy in self.remedies
        ]
        return replace(self, remedies=tuple(drawn))

    @property
    def code(self) -> str:
        """The change as code to paste, for a model called `model`, its inputs `inputs` and its `optimizer`."""
        return "\n".join(
            [code_of(remedy) for remedy in self.remedies] + [self.training_code] * bool(self.training_code)
        )


Plan = tuple[Change, ...]
"""Changes that are made together, in the order of their slots."""


def ordered(changes: Sequence[Change]) -> Plan:
    """The changes in the order in which they are made."""
    return tuple(sorted(changes, key=lambda change: SLOTS.index(change.slot)))


def changed(model: nn.Module, plan: Plan, inputs: Any) -> nn.Module:
    """A copy of `model` with all changes of the plan."""
    for change in plan:
        for remedy in change.remedies:
            model = apply_remedy(remedy, model, inputs)
    return model


def trained_with(choice: OptimizerChoice, plan: Plan) -> OptimizerChoice:
    """The optimizer with all changes of the plan."""
    for change in plan:
        choice = choice if change.training is None else change.training(choice)
    return choice


class LayerCall(NamedTuple):
    """A module without children that was called."""

    name: str
    module: nn.Module
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Patient:
    """A network with all that its changes are read from."""

    model: nn.Module
    batch: Batch
    loss: Loss
    steps: int
    choice: OptimizerChoice

    @cached_property
    def states(self) -> LayerStates:
        """Signal and gradient at each layer."""
        return layer_states(self.model, self.batch, self.loss)

    @cached_property
    def task(self) -> TaskReading:
        """Inputs, targets, and the loss at the start."""
        return measure_task(self.model, self.batch, self.loss)

    @cached_property
    def blocks(self) -> list[ResidualBlock]:
        """The outermost residual blocks; none where the model cannot be taken apart, see `refused`."""
        return [] if isinstance(self._blocks, str) else [block for block in self._blocks if block.parent is None]

    @property
    def refused(self) -> str:
        """Why the model could not be taken apart."""
        return self._blocks if isinstance(self._blocks, str) else ""

    @cached_property
    def _blocks(self) -> "list[ResidualBlock] | str":
        try:
            return list(find_residual_blocks(self.model, self.batch.first(2).inputs))
        except SkiplensError as error:
            return first_line(error)

    @cached_property
    def calls(self) -> list[LayerCall]:
        """The calls of modules without children that take and give one tensor, in order."""
        found: list[LayerCall] = []

        def note(name: str, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            if given and isinstance(given[0], Tensor) and isinstance(output, Tensor):
                found.append(LayerCall(name, module, tuple(given[0].shape), tuple(output.shape)))

        leaves = [
            (name, module) for name, module in self.model.named_modules() if not any(True for _ in module.children())
        ]
        with preserve_state(self.model), torch.no_grad():
            hooks = [
                module.register_forward_hook(lambda module, given, output, name=name: note(name, module, given, output))
                for name, module in leaves
            ]
            try:
                self.batch.first(2).arguments().call(self.model)
            finally:
                for hook in hooks:
                    hook.remove()
        return found

    @cached_property
    def shared(self) -> list[str]:
        """The linear and convolution layers whose weights are used in several places."""
        layers = [call for call in self.calls if isinstance(call.module, WeightLayer)]
        held = [call.module.weight for call in layers]  # kept, so that no two have one address by chance
        names, places = [call.name for call in layers], [id(weight) for weight in held]
        pairs = zip(names, places, strict=True)
        return list(dict.fromkeys(name for name, at in pairs if names.count(name) > 1 or places.count(at) > 1))

    @cached_property
    def weights(self) -> list[LayerCall]:
        """The linear and convolution layers whose weights are used once, in order."""
        return [call for call in self.calls if isinstance(call.module, WeightLayer) and call.name not in self.shared]


def quantised_layers(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers whose weights are whole numbers, which no training moves."""
    modules = [(name, module) for name, module in model.named_modules() if "quantized" in type(module).__module__]
    return tuple(name for name, module in modules if callable(getattr(module, "weight", None)))


def _cannot_change(patient: Patient) -> dict[str, str]:
    """Which parts of the network stay as they are whatever is tried, and why."""
    found: dict[str, str] = {}
    quantised, shared = quantised_layers(patient.model), tuple(patient.shared)
    if quantised:
        found[f"changes of {listed(quantised)}"] = "their weights are quantised, and no training moves them"
    if shared:
        found[f"norms and shortcuts at {listed(shared)}"] = (
            "their weights are used in several places; a start is measured at the first of them"
        )
    return found


def changes_for(patient: Patient, keep: Keep) -> tuple[list[Change], dict[str, str]]:
    """The changes that `keep` allows, those that a reading calls for first; and why the others were left out."""
    allowed = _LEVELS[keep]
    found: list[Change] = []
    left_out: dict[str, str] = {}
    for level, name, make in _KINDS:
        if level > allowed:
            left_out[name] = f"keep={keep!r} does not allow it"
            continue
        made = list(make(patient))
        found += [change for change in made if isinstance(change, Change)]
        reasons = [reason for reason in made if isinstance(reason, str)]
        if reasons:
            left_out[name] = reasons[0]
    return found, left_out | _cannot_change(patient)


Made = Iterator[Change | str]
"""Changes, or in one sentence why there is none."""


def _standardised(patient: Patient) -> Made:
    floating = [tensor for tensor in tensors_in(patient.batch.inputs) if tensor.is_floating_point()]
    if not floating:
        yield "the inputs are tokens"
        return
    values = floating[0].double()
    axes = [axis for axis in range(values.ndim) if axis != (1 if values.ndim > 2 else values.ndim - 1)]
    mean, std = values.mean(axes), values.std(axes)
    size, shift = float(values.square().mean().sqrt()), float((values.mean() / values.std().clamp_min(1e-30)).abs())
    if USUAL_INPUTS[0] < size < USUAL_INPUTS[1] and shift < USUAL_INPUTS[1]:
        yield "the inputs are standardised well enough"
        return
    varying = std[std > 1e-6 * std.max()]
    if len(varying) < 2 or float(varying.max() / varying.min()) < 10:  # one number for all keeps what is rare small
        mean, std = values.mean().view(1), values.std().view(1)
    std = torch.where(std > 1e-6 * std.max(), std, std.max())
    if not float(std.max()) > 0:
        yield "the inputs are constant"
        return
    numbers = {"mean": [float(f"{v:.6g}") for v in mean], "std": [float(f"{v:.6g}") for v in std]}
    yield Change(
        "standardise_inputs",
        "inputs",
        "standardise the inputs as the first layer",
        f"the inputs have size {size:.3g} and a mean of {shift:.2g} standard deviations",
        (Remedy("standardise_inputs", numbers),),
    )


def _softmax(patient: Patient) -> Made:
    if patient.task.form != "classes" or patient.task.answers != "probabilities":
        yield "the outputs are no probabilities"
        return
    yield Change(
        "undo_softmax",
        "outputs",
        "take the logarithm of the probabilities that the model gives",
        "the model ends in a softmax and so does the loss",
        (Remedy("undo_softmax"),),
    )


def _shortcuts(patient: Patient) -> Made:
    if patient.blocks:
        yield f"it has {len(patient.blocks)} residual blocks"
        return
    spans = _spans(patient)
    if len(spans) < LEAST_LAYERS:
        yield f"only {len(spans)} of its layers give what they take in shape"
        return
    growth = f"{len(patient.weights)} layers in a row without a shortcut"
    for length in (1, 2):
        chosen = [(spans[k][0], spans[k + length - 1][1]) for k in range(0, len(spans) - length + 1, length)]
        ends = [name for _, last in chosen for name in _own_parameters(patient.model, last)]
        parameters = {"spans": [list(span) for span in chosen], "zeros": ends}
        yield Change(
            f"shortcuts_over_{length}",
            "structure",
            f"add {len(chosen)} identity shortcuts over {length} layer{'s' * (length > 1)} each, with branches that "
            "start at zero",
            growth,
            (Remedy("add_shortcuts", parameters),),
        )


def _spans(patient: Patient) -> list[tuple[str, str]]:
    """From an activation, where there is one right before, to the layer: what a shortcut in front of it passes by."""
    spans, calls = list[tuple[str, str]](), patient.calls
    once = {call.name for call in patient.weights}
    for place, call in enumerate(calls):
        if call.name not in once or call.before != call.after or call is patient.weights[-1]:
            continue
        first = place
        while first and _passes_on(calls[first - 1], once):
            first -= 1
        spans.append((calls[first].name, call.name))
    return spans


def _passes_on(call: LayerCall, once: set[str]) -> bool:
    """Whether it is an activation, a norm or dropout of its own between two layers."""
    return call.name not in once and call.before == call.after and not isinstance(call.module, nn.Embedding)


def _own_parameters(model: nn.Module, name: str) -> list[str]:
    return [f"{name}.{part}" for part, _ in model.get_submodule(name).named_parameters(recurse=False)]


def _norms(patient: Patient) -> Made:
    if patient.states.of_kind("normalisation"):
        yield "it has norms"
        return
    layers = patient.weights[:-1]
    if not layers:
        yield "it has no layer that a norm could follow"
        return
    names = [call.name for call in layers]
    for kind, unit in (("layer", "each sample over its units"), ("batch", "each unit over the samples")):
        if kind == "batch" and any(isinstance(call.module, nn.Linear) and len(call.after) != 2 for call in layers):
            continue
        yield Change(
            f"{kind}_norms",
            "structure",
            f"add a norm after each of {len(names)} layers ({unit})",
            "it has no norm",
            (Remedy("add_norms", {"layers": names, "kind": kind}),),
        )


def _norms_first(patient: Patient) -> Made:
    kinds = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
    names = [name for name, m in patient.model.named_modules() if isinstance(m, kinds) and not m.norm_first]
    if not names:
        yield "it has no transformer layers of torch.nn that normalise after the sum"
        return
    yield Change(
        "norms_first",
        "structure",
        f"normalise at the beginning of the branches of {len(names)} transformer layers instead of after their sums",
        "norms after the sums scale the shortcut down at each block",
        (Remedy("norms_first", {"modules": names}),),
    )


def _activations(patient: Patient) -> Made:
    names = [name for name, module in patient.model.named_modules() if isinstance(module, SATURATING)]
    names = [name for name in names if name != (patient.calls[-1].name if patient.calls else "")]
    if not names:
        yield "no activation that saturates is a module of its own"
        return
    yield Change(
        "relu",
        "structure",
        f"use ReLU in the place of {len(names)} activations that saturate",
        "an activation that saturates lets less gradient pass than it gets",
        (Remedy("replace_activations", {"modules": names, "by": "relu"}), Remedy("unit_variance", {"seed": 0})),
    )


def _starts(patient: Patient) -> Made:
    if not patient.weights and not patient.shared:
        yield "it has no linear or convolution layer"
        return
    sizes = patient.states.outputs[patient.states.of_kind("weights")]
    finite = sizes[sizes.isfinite() & (sizes > 0)]
    spread = f"{float(finite.min()):.2g} to {float(finite.max()):.2g}" if len(finite) else "no number"
    reason = f"the values that layers give have sizes from {spread}"
    ends = _scaled_ends(patient, 1 / math.sqrt(len(patient.blocks))) if patient.blocks else ()
    scaled = ", and branches of size 1/√L" if ends else ""

    def start(name: str, words: str, remedy: Remedy) -> Change:
        return Change(name, "start", f"{words}{scaled}", reason, (remedy, *ends))

    yield start(
        "unit_variance", "scale every layer so that its values have variance one on the data", Remedy("unit_variance")
    )
    drawn = {"seed": 0, "law": "orthogonal"}
    yield start(
        "orthogonal", "draw orthogonal weights, scaled to variance one on the data", Remedy("unit_variance", drawn)
    )
    if any(isinstance(call.module, WeightLayer) and call.module.bias is not None for call in patient.weights):
        words = "draw orthogonal weights, with values of mean zero and variance one for every unit on the data"
        yield start("centred", words, Remedy("unit_variance", {**drawn, "centred": True}))
    if not patient.blocks and len(patient.weights) > LEAST_LAYERS:
        words = "draw pairs of opposite weights, so that the network starts as a linear isometry"
        yield Change("looks_linear", "start", words, reason, (Remedy("looks_linear", {"seed": 0}),))
    yield Change("he", "start", "draw the weights anew at the size of He", reason, (Remedy("he", {"seed": 0}),))


def _branches(patient: Patient) -> Made:
    if not patient.blocks:
        yield patient.refused or "it has no residual blocks"
        return
    depth = len(patient.blocks)
    reason = f"{depth} branches are added to the signal one after the other"
    yield Change(
        "zero_branches", "branches", "start the last layer of each branch at zero", reason, _scaled_ends(patient, 0.0)
    )
    yield Change(
        "small_branches",
        "branches",
        f"scale each branch by 1/√L = {1 / math.sqrt(depth):.2g}",
        reason,
        _scaled_ends(patient, 1 / math.sqrt(depth)),
    )


def _scaled_ends(patient: Patient, factor: float) -> tuple[Remedy, ...]:
    """The last layer of each branch times a factor."""
    factors: dict[str, float] = {}
    met: set[int] = set()  # blocks may share a layer, which is scaled once
    for block in patient.blocks:
        if block.branch.parameters:
            owner = block.branch.parameters[-1].rpartition(".")[0]
            ends = [name for name in block.branch.parameters if name.rpartition(".")[0] == owner]
            ends = [name for name in ends if id(patient.model.get_parameter(name)) not in met]
            met |= {id(patient.model.get_parameter(name)) for name in ends}
            factors |= dict.fromkeys(ends, float(f"{factor:.4g}"))
    return (Remedy("scale_parameters", {"factors": factors}),) if factors else ()


def _head(patient: Patient) -> Made:
    task = patient.task
    if not task.head or not 0 < task.output_size < math.inf or task.answers != "scores":
        yield "the outputs are not proportional to a last layer"
        return
    if HEAD / 3 < task.output_size < 3 * HEAD:
        yield f"the outputs have the usual size, {task.output_size:.2g}"
        return
    factor = float(f"{HEAD / task.output_size:.4g}")
    yield Change(
        "head",
        "head",
        f"multiply the last layer by {factor:.3g}",
        f"the outputs start with size {task.output_size:.3g}",
        (Remedy("scale_parameters", {"factors": dict.fromkeys(task.head, factor)}),),
    )


def _training(patient: Patient) -> Made:
    steps = max(2, patient.steps // WARM_UP)
    made = patient.choice.factory([nn.Parameter(torch.zeros(1))])
    if not isinstance(made, tuple):
        yield Change(
            "warm_up",
            "training",
            f"let the rate rise over the first {steps} steps",
            "the first steps are taken before the gradient is known well",
            training=lambda choice: warmed_up(choice, steps),
            training_code="schedule = torch.optim.lr_scheduler.LambdaLR(\n"
            f"    optimizer, lambda number: min(1.0, (number + 1) / {steps})\n"
            ")  # schedule.step() after each optimizer.step()",
        )
    yield Change(
        "clip",
        "training",
        f"clip the norm of the gradient at {CLIP:g}",
        "a single large gradient can undo what was learned",
        training=lambda choice: clipped(choice, CLIP),
        training_code=f"torch.nn.utils.clip_grad_norm_(model.parameters(), {CLIP:g})  # before each optimizer.step()",
    )


_KINDS: tuple[tuple[int, str, Callable[[Patient], Made]], ...] = (
    (2, "standardise the inputs", _standardised),
    (2, "take a softmax out", _softmax),
    (1, "another start", _starts),
    (1, "another size of branches", _branches),
    (2, "shortcuts", _shortcuts),
    (2, "norms", _norms),
    (2, "norms before the sum", _norms_first),
    (2, "other activations", _activations),
    (1, "another size of the last layer", _head),
    (0, "warm-up and clipping", _training),
)
