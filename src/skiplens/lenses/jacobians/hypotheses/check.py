"""Which hypotheses of the convergence theorems a model meets, and what to change where it does not."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.lenses.jacobians.hypotheses.chain import describe_model
from skiplens.lenses.jacobians.hypotheses.code import code_for
from skiplens.lenses.jacobians.hypotheses.costs import LossArgument, describe_cost
from skiplens.lenses.jacobians.hypotheses.data_facts import TrainingData, training_data
from skiplens.lenses.jacobians.hypotheses.sampled_gains import sampled_gains
from skiplens.lenses.jacobians.hypotheses.view import GraphView
from skiplens.readings import HypothesesReading, Provenance
from skiplens.residual import ResidualNetwork, dissect
from skiplens.theory.hypotheses import Case, CheckedHypothesis, CostFacts, Description, ResidualLayer, check
from skiplens.theory.hypotheses.convergence_checks import conclusion
from skiplens.theory.hypotheses.verdicts import listed
from skiplens.theory.parameterised_systems import Affine

PROBED_SAMPLES = 4
"""The graph is read with so few samples; what is counted over the batch takes the number of all."""


def check_hypotheses(
    model: nn.Module, data: Any, loss: LossArgument = "cross_entropy", step: float | None = None, seed: int = 0
) -> HypothesesReading:
    """For each hypothesis of the convergence theorems: holds, fails or cannot be decided, and what to change.

    The model is read layer by layer from its graph. What is not recognised is named, and what depends on it cannot be
    decided.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is trained; it is not changed.
        data: The training data: (inputs, targets) or an iterable of such batches.
        loss: ``"cross_entropy"``, ``"mse"``, a loss module or function of torch, or a function of your own.
        step: A learning rate of plain gradient descent to ask about.
        seed: Of the random vectors that probe large shortcuts.

    Examples:
        >>> import skiplens as sl
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        >>> print(sl.check_hypotheses(model, (torch.eye(3), torch.tensor([0, 1, 0])))["S1"]["reason"])
        relu has a kink: its derivative jumps
    """
    settings = {"check": "hypotheses", "model": type(model).__name__, "step": step}
    clock = Provenance.begin(settings, seed)
    samples = training_data(data)
    with untouched(model):
        network = dissect(model, samples.first.first(PROBED_SAMPLES).inputs)
        view, probes = GraphView(network), Randomness(seed)
        view.require_data_matrices()
        layers = describe_model(view, probes.child("skips").torch())
        gains = sampled_gains(view, probes.child("branches").torch(), samples.facts.samples == view.samples)
        case = replace(_case(network, layers, samples, loss, step), sampled_gains=gains)
    checks = check(case)
    return _reading(model, case, checks, clock.end())


def _case(
    network: ResidualNetwork,
    layers: tuple[Description, ...],
    samples: TrainingData,
    loss: LossArgument,
    step: float | None,
) -> Case:
    shape = tuple(network.node(network.output).meta["val"].shape)
    cost = describe_cost(loss, shape, samples.targets)
    return Case(
        layers=layers,
        data=samples.facts,
        cost=cost,
        step=step,
        sublevel=_first_loss(network.model, samples, cost),
        first_weights=_first_weights(network.model, layers[0]),
    )


def _first_loss(model: nn.Module, samples: TrainingData, cost: CostFacts) -> float:
    """The loss now, which gradient descent with a certified step does not exceed; infinite if it is not computed."""
    if cost.cost is None or samples.whole is None:
        return math.inf
    with torch.no_grad():
        outputs = samples.whole.arguments().call(model)
    return float(cost.cost(outputs.T.to("cpu", torch.float64))) if isinstance(outputs, torch.Tensor) else math.inf


def _first_weights(model: nn.Module, first: Description) -> torch.Tensor | None:
    weight = dict(model.named_parameters()).get(f"{first.name}.weight") if isinstance(first, Affine) else None
    return None if weight is None else weight.detach().flatten().to("cpu", torch.float64)


def _reading(
    model: nn.Module, case: Case, checks: Sequence[CheckedHypothesis], provenance: Provenance
) -> HypothesesReading:
    return HypothesesReading(
        model=type(model).__name__,
        loss=case.cost.name,
        layers=tuple(_line(layer) for layer in case.layers),
        labels=tuple(entry.label for entry in checks),
        statements=tuple(entry.hypothesis.statement for entry in checks),
        verdicts=tuple(entry.verdict for entry in checks),
        numbers=tuple(entry.number for entry in checks),
        meanings=tuple(entry.hypothesis.number for entry in checks),
        where=tuple(listed(entry.where) for entry in checks),
        reasons=tuple(entry.reason for entry in checks),
        changes=tuple(entry.change for entry in checks),
        codes=tuple(code_for(entry.label, entry.where, model) for entry in checks),
        conclusion=conclusion(case, checks),
        sampled=tuple(entry.sampled for entry in checks),
        provenance=provenance,
    )


def _line(layer: Description) -> str:
    """A layer in words: its name, what it is and its widths."""
    kind = type(layer).__name__
    inside = f" ({', '.join(type(part).__name__ for part in layer.branch)})" if isinstance(layer, ResidualLayer) else ""
    return f"{layer.name}: {kind}{inside}, {layer.inputs} -> {layer.outputs}"
