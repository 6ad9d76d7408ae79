"""What could be changed in a network so that it trains better: changes as data, each with what calls for it."""

import math
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Literal

import torch

from skiplens.base.randomness import Randomness
from skiplens.base.words import in_words, percent, span
from skiplens.edits.initialisation import HEAD, torch_default
from skiplens.edits.remedies import words_of
from skiplens.edits.structure import SATURATING
from skiplens.graph.batch import tensors_in
from skiplens.improvement.branches import branches, learned_scales, norms, norms_first, open_sums, scaled_ends
from skiplens.improvement.patient import Patient, quantised_layers
from skiplens.improvement.plan import Change, Made, Plan
from skiplens.improvement.shortcuts import LEAST_LAYERS, shortcuts
from skiplens.readings.finding import Remedy, listed
from skiplens.trainability.optimizers import clipped, warmed_up
from skiplens.zoo.weight_laws import is_weight_layer, weights_of

Keep = Literal["outputs", "architecture"] | None
"""What must stay: the function that the network starts as, its architecture (only values change), or nothing."""

_LEVELS: Mapping[Keep, int] = {"outputs": 0, "architecture": 1, None: 2}
USUAL_INPUTS = 0.3, 3.0  # root mean squares, and means in standard deviations, that need no standardising
FAR = 1.5  # times larger or smaller than torch draws it
NEAR = 3.0  # times too large or small: what is nearer may stay
CLIP = 1.0
WARM_UP, COOL_DOWN = 10, 4  # a tenth of the steps, and the last fourth


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
    """The changes that `keep` allows, one of each kind before the next of any; and why the others were left out."""
    allowed = _LEVELS[keep]
    found: list[list[Change]] = []  # a cost that is too small for all leaves out the last
    left_out: dict[str, str] = {}
    for level, name, make in _KINDS:
        if level > allowed:
            left_out[name] = f"keep={keep!r} does not allow it"
            continue
        made = make(patient)
        if isinstance(made, str):
            left_out[name] = made
        else:
            found.append(made)
    *others, training = found  # how it is trained can always be changed, and helps least
    in_turn = [change for row in zip_longest(*others) for change in row if change is not None]
    return [*in_turn, *training], left_out | _cannot_change(patient)


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
    spread = span(float(finite.min()), float(finite.max()), 2) if len(finite) else "no number"
    reason = f"the values that layers give have sizes of {spread}"
    ends = scaled_ends(patient, 1 / math.sqrt(len(patient.blocks))) if patient.blocks else ()
    scaled = ", and branches of size 1/√L" if ends else ""

    def start(name: str, words: str, remedy: Remedy) -> Change:
        return Change(name, "start", f"{words}{scaled}", reason, (remedy, *ends))

    words = "scale every layer so that its values have variance one on the data"
    made, drawn = [start("unit_variance", words, Remedy("unit_variance"))], {"seed": 0, "law": "orthogonal"}
    words = "draw orthogonal weights, scaled to variance one on the data"
    made.append(start("orthogonal", words, Remedy("unit_variance", drawn)))
    layers = [call.module for call in patient.weights if is_weight_layer(call.module)]
    biases = [(layer.bias.detach(), weights_of(layer)[0].numel()) for layer in layers if layer.bias is not None]
    if biases:
        words = "draw orthogonal weights, with values of mean zero and variance one for every unit on the data"
        made.append(start("centred", words, Remedy("unit_variance", {**drawn, "centred": True})))
    if any(float(bias.square().mean()) > FAR**2 / inputs for bias, inputs in biases):  # above all that torch draws
        words = "scale only the layers whose values are three times too large or small: the others keep their biases"
        made.append(Change("far_layers", "start", words, reason, (Remedy("unit_variance", {"near": NEAR}),)))
    if not patient.blocks and len(patient.weights) > LEAST_LAYERS:
        words = "draw pairs of opposite weights, so that the network starts as a linear isometry"
        made.append(Change("looks_linear", "start", words, reason, (Remedy("looks_linear", {"seed": 0}),)))
    laws = {"he": "He"}
    if any(isinstance(module, SATURATING) for module in patient.model.modules()):
        laws["xavier"] = "Xavier, which suits activations that saturate"
    for law, size in laws.items():
        words = f"draw the weights anew at the size of {size}"
        made.append(Change(law, "start", words, reason, (Remedy(law, {"seed": 0}),)))
    return made


def _torch_start(patient: Patient) -> Made:
    """Torch's own start, where layers that no other start draws are far from it."""
    fresh = torch_default(patient.model, Randomness(0)).requires_grad_(False)
    floating = {name: own.detach() for name, own in patient.model.named_parameters() if own.is_floating_point()}
    pairs = {name: (float(own.norm()), float(fresh.get_parameter(name).norm())) for name, own in floating.items()}
    sizes = {name: own / usual for name, (own, usual) in pairs.items() if usual > 0 and 0 < own < math.inf}
    drawn = {f"{name}.weight" for name, module in patient.model.named_modules() if is_weight_layer(module)}
    far = {name: max(size, 1 / size) for name, size in sizes.items() if name not in drawn}
    worst = max(far, key=far.__getitem__, default="")
    if not worst or far[worst] < FAR:
        return "embeddings, norms, recurrent and attention layers start about as torch starts them"
    words = "start every layer as torch does by itself, also embeddings, norms, recurrent and attention layers"
    reason = f"{worst} has {in_words(sizes[worst])} times the size that torch gives it"
    return [Change("torch_default", "start", words, reason, (Remedy("torch_default", {"seed": 0}),))]


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


def _dropouts(patient: Patient) -> Made:
    names = patient.task.dropouts
    if not names:
        return "no dropout drops four fifths or more"
    remedy = Remedy("set_drop_rates", {"rates": dict.fromkeys(names, float(f"{1 - patient.task.dropped:.4g}"))})
    return [Change("drop_less", "dropout", words_of(remedy), f"{percent(patient.task.dropped)} are dropped", (remedy,))]


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
    (1, "another size of branches", branches),
    (2, "shortcuts", shortcuts),
    (2, "norms", norms),
    (2, "norms before the sum", norms_first),
    (2, "other activations", _activations),
    (2, "sums as they are", open_sums),
    (2, "learned sizes of branches", learned_scales),
    (0, "less dropout", _dropouts),
    (0, "warm-up and clipping", _training),
)
