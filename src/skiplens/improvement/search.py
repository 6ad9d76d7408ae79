"""Which changes help: a pilot for each, then for the best ones together, with a forecast as the judge."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.progress import Progress
from skiplens.graph.inputs import first_line
from skiplens.improvement.changes import Change, Patient, Plan, changed, ordered, trained_with
from skiplens.readings.reading import Reading
from skiplens.readings.store import Store
from skiplens.trainability.forecast import LEAST_COST, forecast
from skiplens.trainability.reading import Forecast

FULL = 70  # gradients of a forecast that decides
LEAST = max(20, LEAST_COST)  # gradients of a pilot that sorts out
MOST = 40
TOGETHER = 3  # forecasts that decide: the best change alone, and with others
CLEARLY = 0.05  # by so much must the logarithm of the loss of a pilot fall for a change to go on
WORTH = 0.1  # and by so much for the whole to be raced, and for each change more


@dataclass
class Tried:
    """A plan that a pilot was spent on."""

    plan: Plan
    found: Forecast
    cost: int

    @property
    def name(self) -> str:
        """The names of its changes."""
        return " + ".join(change.name for change in self.plan) or "as it is"


@dataclass
class Search:
    """The work in progress; each forecast is kept in the store, so that a search that was killed goes on."""

    patient: Patient
    data: Any
    seed: int
    cost: int
    progress: Progress
    store: Store | None
    key: str
    tried: list[Tried] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def run(self, changes: list[Change]) -> tuple[Forecast, Tried | None]:
        """The forecast as it is, and the best plan; None where nothing is clearly better."""
        full, screen, affordable = budget(self.cost, len(changes))
        for change in changes[affordable:]:
            self.left_out[change.words] = "the cost does not allow one more pilot"
        before = self.judged((), full)
        if before is None:
            raise InvalidInputError(f"No forecast of the network is possible: {self.left_out.popitem()[1]}")
        base = self.judged((), screen)
        singles = [self.judged((change,), screen) for change in changes[:affordable]]
        ahead = [t for t in singles if t and base and t.found.score < base.found.score - CLEARLY]
        best_of_slot: dict[str, Tried] = {}
        for found in sorted(ahead, key=lambda t: t.found.score):
            best_of_slot.setdefault(found.plan[0].slot, found)
        return before.found, self._together(before, [found.plan[0] for found in best_of_slot.values()], full)

    def _together(self, before: Tried, best: list[Change], full: int) -> Tried | None:
        """The best change with the ones after it, as long as each of them adds something."""
        leading: Tried | None = None
        for change in best[:TOGETHER]:
            known = (change,) if leading is None else (*leading.plan, change)
            candidate = self.judged(ordered(known), full)
            limit = (leading or before).found.score - WORTH
            if candidate is not None and candidate.found.score < limit:
                leading = candidate
        return leading

    def judged(self, plan: Plan, cost: int) -> Tried | None:
        """The forecast of the network with these changes; None where they cannot be made, with the reason kept."""
        name = " + ".join(change.name for change in plan) or "as it is"
        self.progress(f"pilot: {name}", self.spent, self.cost)
        words = [[change.name, [[r.name, dict(r.parameters)] for r in change.remedies]] for change in plan]

        def measure() -> Forecast:
            model = changed(self.patient.model, plan, self.patient.batch.inputs)
            choice = trained_with(self.patient.choice, plan)
            asked = {"loss": self.patient.loss, "steps": self.patient.steps, "seed": self.seed}
            return forecast(model, self.data, optimizer=choice, cost=cost, **asked)

        try:
            found = cast(Forecast, kept(self.store, self.key, ["pilot", words, cost], measure))
        except SkiplensError as error:
            self.left_out[name] = f"the change cannot be made or judged here: {first_line(error)}"
            return None
        self.spent += found.cost
        self.tried.append(Tried(plan, found, cost))
        return self.tried[-1]


def budget(cost: int, changes: int) -> tuple[int, int, int]:
    """Gradients of a forecast that decides and of a pilot, and for how many changes there are pilots."""
    full = max(LEAST_COST, min(FULL, cost // (TOGETHER + 4)))
    left = cost - (1 + TOGETHER) * full
    screen = max(LEAST_COST, min(MOST, left // (changes + 1)), min(LEAST, left // 2))
    return full, screen, max(1, min(changes, left // screen - 1))


def kept(store: Store | None, key: str, words: list[Any], measure: Callable[[], Reading]) -> Reading:
    """What `measure` takes, or took before an interruption."""
    if store is None:
        return measure()
    name = hashlib.sha256(json.dumps([key, words], sort_keys=True).encode()).hexdigest()[:32]
    return store.compute(name, measure)
