"""A network of a wanted depth from nothing: theory proposes, the forecast decides, each choice is told its worth."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

import torch
from torch import nn

from skiplens.base import InvalidInputError, Progress, silent
from skiplens.base.preserve_state import preserve_random_state
from skiplens.base.words import in_words
from skiplens.graph.batch import take, tensors_in
from skiplens.graph.loss import Loss
from skiplens.trainability import Forecast, forecast
from skiplens.trainability.optimizers import Factory
from skiplens.zoo.blueprint import Blueprint, Family, Norm

PILOT, FULL = 40, 70  # gradients that sort out, and that decide
DRAWS = 3  # pilots of a plan, each from another start: by one alone a plan seems a third better or worse by chance
WORTH = 0.1  # by so much must the logarithm of the loss of a pilot fall for theory's choice to be given up

REASONS: Mapping[str, str] = {
    "shortcut": "shortcuts over two layers keep the Hessian at the start well conditioned at any depth "
    "('Demystifying ResNet', theorem 1); across stages they are isometric pools ('On skip connections …', section 5)",
    "branches": "branches of power 1/L keep signal and kernel bounded ('Residual Tangent Kernels', corollary 1, "
    "corrected); with a last layer of zero the network starts as its shortcuts, at every depth",
    "norm": "a norm bounds the singular values of a branch ('On skip connections …', theorem 4.3); branches that start "
    "at zero need none",
    "start": "the variance of He keeps the signal of a ReLU layer; orthogonal weights keep every direction",
}
NAIVE: Mapping[str, Any] = {"shortcut": 0, "branches": "plain", "norm": "none"}


@dataclass(frozen=True)
class Choice:
    """One choice of a design."""

    name: str  # what was chosen: shortcut, branches, norm or start
    value: Any  # what it is
    reason: str  # the theory behind it
    without: Forecast | None = None  # what is expected without it; None where that was not judged
    worth: float = math.nan  # how many times higher a pilot ends without it; NaN where that was not judged

    def __str__(self) -> str:
        """The choice in one line."""
        known = "" if math.isnan(self.worth) else f"; without it a pilot ends {in_words(self.worth, 2)} times as high"
        return f"{self.name} = {self.value!r}: {self.reason}{known}"


@dataclass(frozen=True)
class Design:
    """A network that was designed.

    Attributes:
        model: The network, with its start.
        blueprint: All choices as data; `blueprint.build(seed)` makes the network again.
        choices: Each choice with its reason and its worth.
        forecast: What is expected of it, with the rate to use; None where no data were given.
        seed: Names the start.
    """

    model: nn.Module
    blueprint: Blueprint
    choices: tuple[Choice, ...]
    forecast: Forecast | None
    seed: int = 0

    @property
    def code(self) -> str:
        """Code to paste that makes the network."""
        return f"from skiplens.zoo.blueprint import Blueprint\n\nmodel = {self.blueprint!r}.build({self.seed})"

    def __str__(self) -> str:
        """What is expected, and why each choice was made."""
        lines = [] if self.forecast is None else [self.forecast.sentence]
        return "\n".join([*lines, *map(str, self.choices)])


@preserve_random_state()
def design(  # noqa: PLR0913 - sizes, and keywords of which each has a default
    inputs: int | tuple[int, ...],
    outputs: int,
    *,
    depth: int,
    width: int,
    family: Family = "mlp",
    data: Any = None,
    vocabulary: int = 0,
    loss: Loss = None,
    optimizer: str | Factory = "adam",
    steps: int = 400,
    seed: int = 0,
    progress: Progress = silent,
) -> Design:
    """A network of `depth` layers with shortcut, branch scale, start, norm and step size chosen for that depth.

    Without data the choices are those of theory. With data every choice is judged by pilots, other ones are taken where
    they are clearly better, the usual network (He start with batch norm) among them, and each is told its worth.

    Args:
        inputs: Shape of one sample: features, (channels, height, width), (length, features), or (length,) of tokens.
        outputs: How many numbers it gives.
        depth: Weight matrices in series, first and last included.
        width: Units, channels of the first stage, or features of a token.
        family: ``"mlp"``, ``"resnet"`` or ``"transformer"``.
        data: As for `forecast`; the network stands on their device.
        vocabulary: How many tokens there are, where inputs are tokens.
        loss: As for `forecast`.
        optimizer: As for `forecast`.
        steps: As for `forecast`.
        seed: Names every random draw.
        progress: Called as the work goes on.
    """
    shape = (inputs,) if isinstance(inputs, int) else tuple(inputs)
    norm: Norm = "layer" if family == "transformer" else "none"  # attention needs its inputs at one size
    theory = plan = Blueprint(family, shape, outputs, depth, width, norm=norm, vocabulary=vocabulary)
    if data is None:
        return Design(plan.build(seed), plan, _choices(plan, theory), None, seed)
    device = _require_fit(plan, data)
    judge = _judge(data, device, progress, {"loss": loss, "optimizer": optimizer, "steps": steps})

    def score(plan: Blueprint) -> float:
        return fmean(judge(plan, PILOT, seed + draw).score for draw in range(DRAWS))

    for other in _alternatives(family):
        changed = replace(plan, **other)
        if score(changed) < score(plan) - WORTH:
            plan = changed
    choices = list(_choices(plan, theory))
    for place, choice in enumerate(choices):
        naive = replace(plan, **{choice.name: NAIVE.get(choice.name, choice.value)})
        if naive != plan:
            worth = math.exp(score(naive) - score(plan))
            choices[place] = replace(choice, without=judge(naive, PILOT, seed), worth=worth)
    return Design(plan.build(seed).to(device), plan, tuple(choices), judge(plan, FULL, seed), seed)


def _alternatives(family: Family) -> list[dict[str, Any]]:
    """What is tried in the place of theory's choices; the last two are *He start with a norm*, the usual network."""
    usual: dict[str, Any] = {"norm": "layer", "branches": "plain", "start": "he"}
    own = [{"branches": "scaled"}, {"start": "orthogonal"}, usual | {"shortcut": 2}, usual | {"shortcut": 0}]
    if family == "transformer":  # which takes no batch norm, and whose shortcuts have one length
        return own
    batch = [other | {"norm": "batch"} if "norm" in other else other for other in own]
    return [{"norm": "layer"}, {"norm": "batch"}, {"shortcut": 1}, *batch]


def _judge(data: Any, device: torch.device, progress: Progress, asked: dict[str, Any]) -> Callable[..., Forecast]:
    """What is expected of a plan, given the gradients to spend and the seed of its start; none is made twice."""

    @cache
    def judged(plan: Blueprint, cost: int, seed: int) -> Forecast:
        progress("pilots of designs", judged.cache_info().misses - 1, 12 * DRAWS)
        return forecast(plan.build(seed).to(device), data, cost=cost, seed=seed, **asked)

    return judged


def _choices(plan: Blueprint, theory: Blueprint) -> tuple[Choice, ...]:
    """Each with the theory behind it, or with what speaks against theory's own."""
    pairs = {name: (getattr(plan, name), getattr(theory, name)) for name in REASONS}
    against = "in the place of theory's {!r}, since pilots of the whole end clearly lower so"
    return tuple(
        Choice(name, value, REASONS[name] if value == own else against.format(own))
        for name, (value, own) in pairs.items()
    )


def _require_fit(plan: Blueprint, data: Any) -> torch.device:
    """The device of the data; samples of another shape than was asked for are refused."""
    (first, *_) = tensors_in(take(data, 2).inputs)
    shape = tuple(first.shape[1:])
    if shape != plan.inputs:
        raise InvalidInputError(f"The samples of the data have shape {shape}; inputs says {plan.inputs}.")
    return first.device
