"""The optimizer of a forecast: a name, or the user's own factory whose rates are scaled together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.graph.inputs import first_line

Factory = Callable[[Iterable[nn.Parameter]], Any]
"""Makes an optimizer from parameters, or an optimizer and its scheduler."""

RATES = {"sgd": 1e-2, "adam": 1e-3, "adamw": 1e-3}
NAMED: dict[str, Factory] = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=RATES["sgd"], momentum=0.9),
    "adam": lambda parameters: optim.Adam(parameters, lr=RATES["adam"]),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=RATES["adamw"]),
}
SPACING = 10 ** (2 / 3)  # between two rates that are tried
BELOW, ABOVE = 3, 3  # so many rates below and above the usual one are tried


@dataclass(frozen=True)
class OptimizerChoice:
    """How parameters are moved, at rates that are multiples of the usual one."""

    name: str
    factory: Factory
    usual: float

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates to try, from small to large."""
        return tuple(float(self.usual * SPACING**power) for power in np.arange(-BELOW, ABOVE + 1))

    def make(self, parameters: list[nn.Parameter], rate: float) -> "Mover":
        """The optimizer whose first group moves at `rate`, all others in proportion."""
        made = self.factory(parameters)
        optimizer, scheduler = made if isinstance(made, tuple) else (made, None)
        factor = rate / self.usual
        for group in optimizer.param_groups:
            for name in ("lr", "initial_lr", "max_lr", "min_lr"):  # what schedules start from or go to
                if name in group:
                    group[name] = group[name] * factor
        if scheduler is not None:
            scheduler.base_lrs = [value * factor for value in scheduler.base_lrs]
        return Mover(optimizer, scheduler)


@dataclass(frozen=True)
class Mover:
    """An optimizer with the schedule of its rate."""

    optimizer: optim.Optimizer
    scheduler: LRScheduler | None

    def step(self) -> None:
        """Move the parameters along their gradients."""
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        schedule = {} if self.scheduler is None else self.scheduler.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "scheduler": schedule}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])


def warmed_up(choice: OptimizerChoice, steps: int) -> OptimizerChoice:
    """The same with a rate that rises linearly over the first `steps` steps."""

    def factory(parameters: Iterable[nn.Parameter]) -> Any:
        optimizer = choice.factory(parameters)
        return optimizer, LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / steps))

    return replace(choice, name=f"{choice.name}, warmed up over {steps} steps", factory=factory)


def clipped(choice: OptimizerChoice, norm: float) -> OptimizerChoice:
    """The same with gradients whose norm is at most `norm`."""

    def factory(parameters: Iterable[nn.Parameter]) -> Any:
        kept = list(parameters)

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(kept, norm)

        made = choice.factory(kept)
        optimizer = made[0] if isinstance(made, tuple) else made
        optimizer.register_step_pre_hook(clip)
        return made

    return replace(choice, name=f"{choice.name}, clipped at {norm:g}", factory=factory)


def optimizer_choice(optimizer: "str | Factory | OptimizerChoice") -> OptimizerChoice:
    """The optimizer called so, or the one that a factory makes; a factory that fails is one sentence here."""
    if isinstance(optimizer, OptimizerChoice):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            raise InvalidInputError(f"There is no optimizer {optimizer!r}. {did_you_mean(optimizer, NAMED)}")
        return OptimizerChoice(optimizer, NAMED[optimizer], RATES[optimizer])
    if callable(optimizer) and not isinstance(optimizer, optim.Optimizer):
        name, factory = getattr(optimizer, "__name__", type(optimizer).__name__), optimizer
    else:
        raise InvalidInputError(
            f"optimizer is a {type(optimizer).__name__}; hand over a name ({', '.join(NAMED)}) or a function that "
            "makes one from parameters, such as lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
        )
    return OptimizerChoice(name, factory, _usual_rate(name, factory))


def _usual_rate(name: str, factory: Factory) -> float:
    """The rate that the factory sets, found on a parameter of its own."""
    wanted = "wanted a function of parameters that returns a torch.optim.Optimizer, or one and its scheduler"
    try:
        made = factory([nn.Parameter(torch.zeros(1))])
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise InvalidInputError(f"The optimizer {name!r} cannot be made: {said} ({wanted}).") from error
    optimizer, scheduler = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(optimizer, optim.Optimizer) or not isinstance(scheduler, LRScheduler | None):
        raise InvalidInputError(f"The optimizer {name!r} returned a {type(made).__name__}; {wanted}.")
    group = optimizer.param_groups[0]
    rate = float(group.get("initial_lr", group["lr"]))
    if not 0 < rate < float("inf"):
        raise InvalidInputError(
            f"The optimizer {name!r} has the rate {rate:g}; a forecast scales it, so it must be positive."
        )
    return rate
