"""What could be changed in a network so that it trains better: changes as data, each with what calls for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from skiplens.base.randomness import Randomness
from skiplens.base.words import in_words
from skiplens.edits.initialisation import HEAD, torch_default
from skiplens.edits.remedies import apply_remedy, code_of
from skiplens.edits.structure import SATURATING
from skiplens.graph.batch import tensors_in
from skiplens.improvement.patient import LayerCall, Patient, quantised_layers
from skiplens.readings.finding import Remedy, listed
from skiplens.trainability.optimizers import OptimizerChoice, clipped, warmed_up
from skiplens.zoo.weight_laws import WeightLayer

Keep = Literal["outputs", "architecture"] | None
"""What must stay: the function that the network starts as, its architecture (only values change), or nothing."""

SLOTS = ("inputs", "outputs", "activations", "norms", "start", "shortcuts", "branches", "head", "training")
"""What a change acts on, in the order in which changes are made; two changes of one slot exclude each other."""

_LEVELS: Mapping[Keep, int] = {"outputs": 0, "architecture": 1, None: 2}
LEAST_LAYERS = 4  # of equal shape: fewer need no shortcut
USUAL_INPUTS = 0.3, 3.0  # root mean squares, and means in standard deviations, that need no standardising
FAR = 1.5  # times larger or smaller than torch draws it
NEAR = 3.0  # times too large or small: what is nearer may stay
CLIP = 1.0
WARM_UP, COOL_DOWN = 10, 4  # a tenth of the steps, and the last fourth


@dataclass(frozen=True)
class Change:
    """One change of a network or of its training."""

    name: str  # what it is called
    slot: str  # what it acts on
    words: str  # what is done, as an order
    reason: str  # what was measured that calls for it
    remedies: tuple[Remedy, ...] = ()  # changes of the model, in order
    training: Callable[[OptimizerChoice], OptimizerChoice] | None = None  # changes the optimizer; None where it stays
    training_code: str = ""  # that as code to paste

    def with_seed(self, seed: int) -> "Change":
        """The same change; what it draws is drawn with another seed."""
        return replace(self, remedies=tuple(remedy.with_seed(seed) for remedy in self.remedies))

    @property
    def code(self) -> str:
        """The change as code to paste, for a model called `model`, its inputs `inputs` and its `optimizer`."""
        return "\n".join([*map(code_of, self.remedies), *filter(None, [self.training_code])])


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


def _cannot_change(patient: Patient) -> dict[str, str]:
    """Which parts of the network stay as they are whatever is tried, and why."""
    found: dict[str, str] = {}
    quantised, shared = quantised_layers(patient.model), tuple(patient.shared)
    if quantised:
        found[f"changes of {listed(quantised)}"] = "their weights are quantised, and no training moves them"
    if shared:
        reason = "their weights are used in several places; a start is measured at the first of them"
        found[f"norms and shortcuts at {listed(shared)}"] = reason
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
        made = make(patient)
        if isinstance(made, str):
            left_out[name] = made
        else:
            found += made
    return found, left_out | _cannot_change(patient)


Made = list[Change] | str  # changes, or why there is none


def _standardised(patient: Patient) -> Made:
    floating = [tensor for tensor in tensors_in(patient.batch.inputs) if tensor.is_floating_point()]
    if not floating:
        return "the inputs are tokens"
    values = floating[0].double()
    axes = [axis for axis in range(values.ndim) if axis != (1 if values.ndim > 2 else values.ndim - 1)]
    mean, std = values.mean(axes), values.std(axes)
    size, shift = float(values.square().mean().sqrt()), float((values.mean() / values.std().clamp_min(1e-30)).abs())
    if USUAL_INPUTS[0] < size < USUAL_INPUTS[1] and shift < USUAL_INPUTS[1]:
        return "the inputs are standardised well enough"
    varying = std[std > 1e-6 * std.max()]
    if len(varying) < 2 or float(varying.max() / varying.min()) < 10:  # one number for all keeps what is rare small
        mean, std = values.mean().view(1), values.std().view(1)
    std = torch.where(std > 1e-6 * std.max(), std, std.max())
    if not float(std.max()) > 0:
        return "the inputs are constant"
    numbers = {"mean": [float(f"{v:.6g}") for v in mean], "std": [float(f"{v:.6g}") for v in std]}
    words, remedies = "standardise the inputs as the first layer", (Remedy("standardise_inputs", numbers),)
    reason = f"the inputs have size {in_words(size)} and a mean of {in_words(shift, 2)} standard deviations"
    return [Change("standardise_inputs", "inputs", words, reason, remedies)]


def _softmax(patient: Patient) -> Made:
    if patient.task.form != "classes" or patient.task.answers != "probabilities":
        return "the outputs are no probabilities"
    words = "take the logarithm of the probabilities that the model gives"
    reason = "the model ends in a softmax and so does the loss"
    return [Change("undo_softmax", "outputs", words, reason, (Remedy("undo_softmax"),))]


def _shortcuts(patient: Patient) -> Made:
    if patient.blocks:
        return f"it has {len(patient.blocks)} residual blocks"
    spans = _spans(patient)
    if len(spans) < LEAST_LAYERS:
        return f"only {len(spans)} of its layers give what they take in shape"
    made, growth = list[Change](), f"{len(patient.weights)} layers in a row without a shortcut"
    for length, over in ((1, "1 layer"), (2, "2 layers")):
        pairs = [(spans[k], spans[k + length - 1]) for k in range(0, len(spans) - length + 1, length)]
        pairs = [pair for pair in pairs if pair[0][1].before == pair[1][1].after]
        if not pairs:
            continue
        chosen = [[first, last.name, *last.place] for (first, *_), (_, last, _) in pairs]
        own = {end: patient.model.get_submodule(end).named_parameters(recurse=False) for _, (*_, end) in pairs}
        ends = [f"{layer}.{part}" for layer, found in own.items() for part, _ in found]
        remedy = Remedy("add_shortcuts", {"spans": chosen, "zeros": ends})
        words = f"add {len(chosen)} identity shortcuts over {over} each, with branches that start at zero"
        made.append(Change(f"shortcuts_over_{length}", "shortcuts", words, growth, (remedy,)))
    return made


def _spans(patient: Patient) -> list[tuple[str, LayerCall, str]]:
    """Both ends of what shortcuts could pass by, and its last layer: from an activation right before it, if any."""
    calls, once = patient.calls, {call.name for call in patient.weights}
    found: dict[str, tuple[int, LayerCall, LayerCall]] = {}  # where it begins, what the shortcut is around, last layer
    for place, call in enumerate(calls):
        around = patient.around(call) if call.name in once and call is not patient.weights[-1] else None
        if around is not None and around.end in ("", call.name):
            found[around.name] = found[around.name][0] if around.name in found else place, around, call
    spans = list[tuple[str, LayerCall, str]]()
    for name, (place, around, last) in found.items():
        if any(other.startswith(f"{name}.") for other in found):
            continue  # shortcuts inside it are enough
        first = place
        while first and _passes_on(calls[first - 1], once) and calls[first - 1].before == around.before:
            first -= 1
        inside = calls[first].name.startswith(f"{name}.") or first == place
        spans.append((name if inside else calls[first].name, around, last.name))
    return spans


def _passes_on(call: LayerCall, once: set[str]) -> bool:
    """Whether it is an activation, a norm or dropout of its own between two layers."""
    return call.name not in once and call.before == call.after and not isinstance(call.module, nn.Embedding)


def _norms(patient: Patient) -> Made:
    if patient.states.of_kind("normalisation"):
        return "it has norms"
    layers = patient.weights[:-1]
    if not layers:
        return "it has no layer that a norm could follow"
    made, names = list[Change](), [call.name for call in layers]
    for kind, unit in (("layer", "each sample over its units"), ("batch", "each unit over the samples")):
        if kind == "batch" and any(isinstance(call.module, nn.Linear) and len(call.after) != 2 for call in layers):
            continue
        words, remedy = f"add a norm after each of {len(names)} layers ({unit})", {"layers": names, "kind": kind}
        made.append(Change(f"{kind}_norms", "norms", words, "it has no norm", (Remedy("add_norms", remedy),)))
    return made


def _norms_first(patient: Patient) -> Made:
    kinds = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
    names = [name for name, m in patient.model.named_modules() if isinstance(m, kinds) and not m.norm_first]
    if not names:
        return "it has no transformer layers of torch.nn that normalise after the sum"
    words = f"normalise at the beginning of the branches of {len(names)} transformer layers instead of after their sums"
    reason = "norms after the sums scale the shortcut down at each block"
    return [Change("norms_first", "norms", words, reason, (Remedy("norms_first", {"modules": names}),))]


def _activations(patient: Patient) -> Made:
    names = [name for name, module in patient.model.named_modules() if isinstance(module, SATURATING)]
    names = [name for name in names if name != (patient.calls[-1].name if patient.calls else "")]
    if not names:
        return "no activation that saturates is a module of its own"
    words = f"use ReLU in the place of {len(names)} activations that saturate"
    reason = "an activation that saturates lets less gradient pass than it gets"
    remedies = Remedy("replace_activations", {"modules": names, "by": "relu"}), Remedy("unit_variance", {"seed": 0})
    return [Change("relu", "activations", words, reason, remedies)]


def _starts(patient: Patient) -> Made:
    if not patient.weights and not patient.shared:
        return "it has no linear or convolution layer"
    sizes = patient.states.outputs[patient.states.of_kind("weights")]
    finite = sizes[sizes.isfinite() & (sizes > 0)]
    spread = f"{in_words(float(finite.min()), 2)} to {in_words(float(finite.max()), 2)}" if len(finite) else "no number"
    reason = f"the values that layers give have sizes from {spread}"
    ends = _scaled_ends(patient, 1 / math.sqrt(len(patient.blocks))) if patient.blocks else ()
    scaled = ", and branches of size 1/√L" if ends else ""

    def start(name: str, words: str, remedy: Remedy) -> Change:
        return Change(name, "start", f"{words}{scaled}", reason, (remedy, *ends))

    words = "scale every layer so that its values have variance one on the data"
    made, drawn = [start("unit_variance", words, Remedy("unit_variance"))], {"seed": 0, "law": "orthogonal"}
    words = "draw orthogonal weights, scaled to variance one on the data"
    made.append(start("orthogonal", words, Remedy("unit_variance", drawn)))
    layers = [call.module for call in patient.weights if isinstance(call.module, WeightLayer)]
    biases = [(layer.bias.detach(), layer.weight[0].numel()) for layer in layers if layer.bias is not None]
    if biases:
        words = "draw orthogonal weights, with values of mean zero and variance one for every unit on the data"
        made.append(start("centred", words, Remedy("unit_variance", {**drawn, "centred": True})))
    if any(float(bias.square().mean()) > FAR**2 / inputs for bias, inputs in biases):  # above all that torch draws
        words = "scale only the layers whose values are three times too large or small: the others keep their biases"
        made.append(Change("far_layers", "start", words, reason, (Remedy("unit_variance", {"near": NEAR}),)))
    if not patient.blocks and len(patient.weights) > LEAST_LAYERS:
        words = "draw pairs of opposite weights, so that the network starts as a linear isometry"
        made.append(Change("looks_linear", "start", words, reason, (Remedy("looks_linear", {"seed": 0}),)))
    he = Change("he", "start", "draw the weights anew at the size of He", reason, (Remedy("he", {"seed": 0}),))
    return [*made, he]


def _torch_start(patient: Patient) -> Made:
    """Torch's own start, where layers that no other start draws are far from it."""
    fresh = torch_default(patient.model, Randomness(0)).requires_grad_(False)
    floating = {name: own.detach() for name, own in patient.model.named_parameters() if own.is_floating_point()}
    pairs = {name: (float(own.norm()), float(fresh.get_parameter(name).norm())) for name, own in floating.items()}
    sizes = {name: own / usual for name, (own, usual) in pairs.items() if usual > 0 and 0 < own < math.inf}
    drawn = {f"{name}.weight" for name, module in patient.model.named_modules() if isinstance(module, WeightLayer)}
    far = {name: max(size, 1 / size) for name, size in sizes.items() if name not in drawn}
    worst = max(far, key=far.__getitem__, default="")
    if not worst or far[worst] < FAR:
        return "embeddings, norms, recurrent and attention layers start about as torch starts them"
    words = "start every layer as torch does by itself, also embeddings, norms, recurrent and attention layers"
    reason = f"{worst} has {in_words(sizes[worst])} times the size that torch gives it"
    return [Change("torch_default", "start", words, reason, (Remedy("torch_default", {"seed": 0}),))]


def _branches(patient: Patient) -> Made:
    if not patient.blocks:
        return patient.refused or "it has no residual blocks"
    small = 1 / math.sqrt(len(patient.blocks))
    reason = f"{len(patient.blocks)} branches are added to the signal one after the other"
    words, ends = "start the last layer of each branch at zero", _scaled_ends(patient, 0.0)
    zero = Change("zero_branches", "branches", words, reason, ends)
    words, ends = f"scale each branch by 1/√L = {in_words(small, 2)}", _scaled_ends(patient, small)
    return [zero, Change("small_branches", "branches", words, reason, ends)]


def _scaled_ends(patient: Patient, factor: float) -> tuple[Remedy, ...]:
    """The last layer of each branch times a factor."""
    factors: dict[str, float] = {}
    met: set[int] = set()  # blocks may share a layer, which is scaled once
    for block in patient.blocks:
        ends = [name for name in block.branch_ends if id(patient.model.get_parameter(name)) not in met]
        met |= {id(patient.model.get_parameter(name)) for name in ends}
        factors |= dict.fromkeys(ends, float(f"{factor:.4g}"))
    return (Remedy("scale_parameters", {"factors": factors}),) if factors else ()


def _head(patient: Patient) -> Made:
    task = patient.task
    if not task.head or not 0 < task.output_size < math.inf or task.answers != "scores":
        return "the outputs are not proportional to a last layer"
    if HEAD / NEAR < task.output_size < NEAR * HEAD:
        return f"the outputs have the usual size, {in_words(task.output_size, 2)}"
    factor = float(f"{HEAD / task.output_size:.4g}")
    words = f"multiply the last layer by {in_words(factor)}"
    reason = f"the outputs start with size {in_words(task.output_size)}"
    remedy = Remedy("scale_parameters", {"factors": dict.fromkeys(task.head, factor)})
    return [Change("head", "head", words, reason, (remedy,))]


def _training(patient: Patient) -> Made:
    steps = max(2, patient.steps // WARM_UP)
    words, reason = f"let the rate rise over the first {steps} steps", "the first steps know the gradient badly"
    code = _schedule_code(f"(number + 1) / {steps}")
    warm_up = Change("warm_up", "training", words, reason, (), lambda choice: warmed_up(choice, steps), code)
    words, reason = f"clip the norm of the gradient at {CLIP:g}", "a single large gradient can undo what was learned"
    code = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {CLIP:g})  # before each optimizer.step()"
    clip = Change("clip", "training", words, reason, (), lambda choice: clipped(choice, CLIP), code)
    return [clip] if patient.scheduled else [warm_up, clip]


def cool_down(plan: Plan, steps: int, reason: str) -> Change:
    """A rate that falls to zero at the end of a training with this plan: pilots do not go so far, a race tries it."""
    rising = f", (number + 1) / {max(2, steps // WARM_UP)}" * any(change.name == "warm_up" for change in plan)
    words = f"let the rate fall to zero over the last {steps // COOL_DOWN} of {steps} steps"
    code = _schedule_code(f"({steps} - number) / {steps // COOL_DOWN}{rising}")
    return Change("cool_down", "training", words, reason, training_code=code)


def _schedule_code(factor: str) -> str:
    made = f"schedule = torch.optim.lr_scheduler.LambdaLR(\n    optimizer, lambda number: min(1.0, {factor})\n)"
    return f"import torch\n\n{made}  # schedule.step() after each optimizer.step()"


_KINDS: tuple[tuple[int, str, Callable[[Patient], Made]], ...] = (
    (2, "standardise the inputs", _standardised),
    (2, "take a softmax out", _softmax),
    (1, "torch's own start", _torch_start),
    (1, "another size of the last layer", _head),
    (1, "another start", _starts),
    (1, "another size of branches", _branches),
    (2, "shortcuts", _shortcuts),
    (2, "norms", _norms),
    (2, "norms before the sum", _norms_first),
    (2, "other activations", _activations),
    (0, "warm-up and clipping", _training),
)
