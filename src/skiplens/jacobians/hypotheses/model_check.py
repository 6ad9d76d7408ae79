"""Which hypotheses of the convergence theorems a model meets, and what to change where it does not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from skiplens.base import Progress, Randomness, silent
from skiplens.base.arguments import accept_old_order
from skiplens.base.preserve_state import preserve_random_state, preserve_state
from skiplens.graph import Lens, Subject, dissect
from skiplens.graph.batch import Batch, as_batches, concatenate, tensors_in
from skiplens.graph.functional import transformable
from skiplens.graph.inputs import require_module
from skiplens.graph.loss import Loss, loss_name
from skiplens.graph.network import ResidualNetwork, part_function
from skiplens.jacobians.hypotheses import report
from skiplens.jacobians.hypotheses.chain import describe_cost, describe_model
from skiplens.jacobians.hypotheses.conditions import check, conclusion
from skiplens.jacobians.hypotheses.descriptions import Case, DataFacts, ResidualLayer, SampledGain
from skiplens.jacobians.hypotheses.parts import GraphView
from skiplens.jacobians.hypotheses.report import FIGURES, HypothesesReading, hypotheses_numbers, hypotheses_scale
from skiplens.jacobians.part_spectrum import Linearised, couples_samples, keeps_samples
from skiplens.jacobians.systems.affine import Affine
from skiplens.linalg.singular_values import singular_density
from skiplens.plots.section import ReadingView
from skiplens.readings.finding import listed
from skiplens.readings.reading import Provenance

PROBED_SAMPLES = 4  # the graph is read with so few samples; what is counted over the batch takes the number of all
MOST = 3  # lines of code for one hypothesis at most: the pattern is clear then

_IMPORT = "from skiplens.zoo.macdonald2023 import NormalisedConv2d, NormalisedLinear, Parameterisation"
MOST_NUMBERS = 20_000_000
MOST_RANK = 1500  # singular values of larger data matrices would take minutes; then only the counts are reported


@accept_old_order("model", "data", "loss", "step", "seed")
@preserve_random_state()
def check_hypotheses(
    model: nn.Module, data: Any, *, loss: Loss = "cross_entropy", step: float | None = None, seed: int = 0
) -> HypothesesReading:
    """For each hypothesis of the convergence theorems: holds, fails or cannot be decided, and what to change.

    The model is read layer by layer from its graph. What is not recognised is named, and what depends on it cannot be
    decided.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is trained; it is not changed.
        data: The training data: (inputs, targets) or an iterable of such batches.
        loss: ``"cross_entropy"``, ``"mse"``, a loss module or function of torch, a function of your own, or None where
            the model returns its own loss; of the last two nothing is known.
        step: A learning rate of plain gradient descent to ask about.
        seed: Of the random vectors that probe large shortcuts.

    Examples:
        >>> import skiplens as sl
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        >>> print(sl.check_hypotheses(model, (torch.eye(3), torch.tensor([0, 1, 0])))["S1"]["reason"])
        relu has a kink: its derivative jumps
    """
    with preserve_state(require_module(model)):
        samples = training_data(data)
        return _checked(dissect(model, samples.first.first(PROBED_SAMPLES).inputs), samples, loss, step, seed)


def _checked(
    network: ResidualNetwork, samples: "TrainingData", loss: Loss, step: float | None, seed: int
) -> HypothesesReading:
    """The hypotheses of a network that is taken apart already; see `check_hypotheses`."""
    model = network.model
    clock = Provenance.begin({"check": "hypotheses", "model": type(model).__name__, "step": step}, seed)
    with preserve_state(model):
        view, probes = GraphView(network), Randomness(seed)
        view.require_data_matrices()
        layers = describe_model(view, probes.child("skips").torch())
        gains = sampled_gains(view, probes.child("branches").torch(), samples.facts.samples == view.samples)
        cost = describe_cost(loss, tuple(network.node(network.output).meta["val"].shape), samples.targets)
        weight = dict(model.named_parameters()).get(f"{layers[0].name}.weight")
        first = None  # weights that the theory has a number for
        if weight is not None and not weight.is_complex() and isinstance(layers[0], Affine):
            first = weight.detach().flatten().to("cpu", torch.float64)
        sublevel = math.inf  # the loss now, which gradient descent with a certified step does not exceed
        if cost.cost is not None and samples.whole is not None:
            with torch.no_grad():
                outputs = samples.whole.arguments().call(model)
            sublevel = float(cost.cost(outputs.T.to("cpu", torch.float64))) if isinstance(outputs, Tensor) else math.inf
        case = Case(layers, samples.facts, cost, step, sublevel, first, gains)
    return _reading(model, case, clock.end())


def _reading(model: nn.Module, case: Case, provenance: Provenance) -> HypothesesReading:
    checks, layers = check(case), []
    for layer in case.layers:  # in words: its name, what it is and its widths
        kind = type(layer).__name__
        if isinstance(layer, ResidualLayer):
            kind = f"{kind} ({', '.join(type(part).__name__ for part in layer.branch)})"
        layers.append(f"{layer.name}: {kind}, {layer.inputs} -> {layer.outputs}")
    return HypothesesReading(
        model=type(model).__name__,
        loss=case.cost.name,
        layers=tuple(layers),
        labels=tuple(one.label for one in checks),
        statements=tuple(one.hypothesis.statement for one in checks),
        verdicts=tuple(one.verdict for one in checks),
        numbers=tuple(one.number for one in checks),
        meanings=tuple(one.hypothesis.number for one in checks),
        where=tuple(listed(one.where, most=3) for one in checks),
        reasons=tuple(one.reason for one in checks),
        changes=tuple(one.change for one in checks),
        codes=tuple(code_for(one.label, one.where, model) for one in checks),
        conclusion=conclusion(case, checks),
        sampled=tuple(one.sampled for one in checks),
        provenance=provenance,
    )


def code_for(label: str, where: Sequence[str], model: nn.Module) -> str:
    """Lines that change the modules a hypothesis fails at, or '' where there are none to give."""
    modules = dict(model.named_modules())
    news: dict[str, str] = {}
    for name in where:
        if label == "S1" and name in modules and not any(modules[name].parameters()):
            news[name] = "torch.nn.Tanh()"
        elif label == "S2" and name in modules:
            news[name] = _normalised(modules[name])
    lines = [f'model.set_submodule("{name}", {new})' for name, new in news.items() if new]
    more = [f"# and {len(lines) - MOST} more like these"] if len(lines) > MOST else []
    imports = [_IMPORT] if any("Normalised" in line for line in lines[:MOST]) else []
    return "\n".join([*imports, *lines[:MOST], *more])


def _normalised(module: nn.Module) -> str:
    """The call that makes the normalised counterpart of a module, '' if there is none."""
    rule = 'Parameterisation("weight")'
    if isinstance(module, nn.Linear):
        return f"NormalisedLinear({module.in_features}, {module.out_features}, {rule})"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return f"torch.nn.{type(module).__name__}({module.num_features}, affine=False)"
    if isinstance(module, nn.LayerNorm):
        return f"torch.nn.LayerNorm({module.normalized_shape}, elementwise_affine=False)"
    if isinstance(module, nn.GroupNorm):
        return f"torch.nn.GroupNorm({module.num_groups}, {module.num_channels}, affine=False)"
    if isinstance(module, nn.Conv2d) and not isinstance(module.padding, str):
        sizes = (module.kernel_size, module.stride, module.padding)
        if all(len({*size}) == 1 for size in sizes) and module.groups == 1 and {*module.dilation} == {1}:
            channels = f"({module.in_channels}, {module.out_channels})"
            window, stride, padding = (size[0] for size in sizes)
            return f"NormalisedConv2d({channels}, {window}, {rule}, stride={stride}, padding={padding})"
    return ""


@dataclass(frozen=True)
class TrainingData:
    """What the checker needs of the data: a few samples to call the model with, all targets, and the facts."""

    first: Batch
    targets: Tensor
    facts: DataFacts
    whole: Batch | None  # all samples, where they are few enough to be kept


def training_data(data: Any) -> TrainingData:
    """All batches, gone through once; they are kept only as long as they are few."""
    batches = iter(as_batches(data))
    first = next(batches)
    features = sum(tensor[0].numel() for tensor in tensors_in(first.inputs) if tensor.ndim and len(tensor))
    kept, targets, samples = list[Batch](), list[Tensor](), 0
    for batch in chain([first], batches):
        samples += batch.samples
        targets.append(batch.labelled().targets)
        kept = [*kept, batch] if samples * features <= MOST_NUMBERS else []
    whole = concatenate(kept) if kept and sum(batch.samples for batch in kept) == samples else None
    facts, tensors = DataFacts(samples, features), [] if whole is None else list(tensors_in(whole.inputs))
    if len(tensors) == 1 and tensors[0].is_floating_point() and min(samples, features) <= MOST_RANK:
        facts = DataFacts.of_matrix(tensors[0].detach().flatten(1).T.to("cpu", torch.float64))
    return TrainingData(first, torch.cat(targets), facts, whole)


# Steps of Golub-Kahan: what they find lies below the largest singular value, by a few percent on real networks.
STEPS = 8
PASSES = 2 * STEPS + 4  # forward and back in each step, and what tells whether samples are coupled
MOST_SAMPLED_NUMBERS = 2_000_000  # branches with larger inputs are not measured: a checker answers in seconds


def sampled_gains(view: GraphView, generator: torch.Generator, is_whole: bool) -> dict[str, SampledGain]:
    """The measured slope of each outermost block whose branch has one; `is_whole`: the samples are all of the data."""
    blocks = [block for block in view.network.blocks if block.parent is None]
    with torch.no_grad():
        inputs = view.network.run([block.input for block in blocks])
    found = {}
    for block in blocks:
        point = inputs[block.input]
        if not point.is_floating_point() or not 0 < point.numel() <= MOST_SAMPLED_NUMBERS:
            continue
        with transformable():
            branch = Linearised(part_function(view.network, block, "branch"), point)
            start = torch.randn((1, branch.columns), generator=generator, device=generator.device).to(point)
            try:
                largest = float(singular_density(branch.forward, branch.adjoint, start, STEPS).nodes[0])
                alone = keeps_samples(branch, view.samples) and not couples_samples(branch, view.samples, generator)
            except RuntimeError:  # an operation without the derivatives that torch needs for this
                continue
        found[block.name] = SampledGain(largest, is_whole or alone)
    return found


@dataclass(frozen=True)
class ConvergenceLens(Lens):
    """Which hypotheses of the convergence theorems the network meets on these samples."""

    name: ClassVar[str] = "convergence"
    question: ClassVar[str] = "Is gradient descent guaranteed to arrive?"

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> HypothesesReading:
        """Check with the subject's loss; without one it is the mean square for numbers, cross-entropy for classes."""
        loss = subject.loss
        if loss is None:
            loss = "mse" if subject.batch.labelled().targets.is_floating_point() else "cross_entropy"
        wanted = min(PROBED_SAMPLES, subject.batch.samples)
        count = subject.at_least_together(subject.afforded(PASSES, wanted), wanted)
        settings = {"lens": self.name, "model": subject.name, "loss": loss_name(loss), "samples": subject.batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        progress("checking hypotheses", 0, 1)
        with preserve_random_state(), preserve_state(subject.model):
            network = subject.network_of(subject.batch.first(count))
            reading = _checked(network, training_data(subject.batch), loss, None, randomness.seed)
        progress("checking hypotheses", 1, 1)
        note = f"A pass is costly, so the slopes of branches were measured with {count} instead of {wanted} samples."
        return replace(reading, model=subject.name, notes=(note,) * (count < wanted), provenance=clock.end())


VIEW = ReadingView(
    HypothesesReading,
    ConvergenceLens,
    report.convergence_section,
    FIGURES,
    key_numbers=hypotheses_numbers,
    scale=hypotheses_scale,
)
