"""Which changes help: a pilot for each, then for the best ones together, with a forecast as the judge."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from skiplens.base import InvalidInputError, Progress, SkiplensError
from skiplens.graph.inputs import first_line
from skiplens.improvement.patient import Patient
from skiplens.improvement.plan import Change, Plan, changed, ordered, trained_with
from skiplens.readings import Reading, Store
from skiplens.trainability.forecast import LEAST_COST, READINGS, forecast
from skiplens.trainability.reading import Forecast

FULL = 70  # gradients of a forecast that decides
LEAST = max(20, LEAST_COST)  # gradients of a pilot that sorts out
MOST = 40
LEADS = 2  # changes of different kinds that others are tried with
COMPANIONS = 6  # changes that are tried with each of them
DECISIONS = 4  # forecasts that decide
CLEARLY = 0.05  # by so much must the logarithm of the loss of a pilot fall for a change to go on
WORTH = 0.1  # and by so much for the whole to be raced, and for each change more
BLIND = -0.2  # logarithms of the loss, in guesses: where no pilot came below, which is lowest says nothing


@dataclass(eq=False)
class Tried:
    """A plan that a pilot was spent on; `parent` is the one with a change less, if it was grown from one."""

    plan: Plan
    found: Forecast
    cost: int
    parent: "Tried | None" = None

    @property
    def name(self) -> str:
        """The names of its changes."""
        return named(self.plan)


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
    free: int = 0  # what may be spent before the forecasts that decide

    def run(self, changes: list[Change]) -> tuple[Forecast, Tried | None]:
        """The forecast as it is, and the best plan; None where nothing is clearly better."""
        full, screen, affordable = budget(self.cost, len(changes))
        for change in changes[affordable:]:
            self.left_out[change.words] = "the cost does not allow one more pilot"
        before = self.judged((), full)
        if before is None:
            raise InvalidInputError(f"No forecast of the network is possible: {self.left_out.popitem()[1]}")
        self.free = self.cost - DECISIONS * full
        base = self.judged((), screen)
        grown = self._grown(base, changes[:affordable], screen) if base else []
        plans = [tried.plan for tried in sorted(grown, key=_score)][:DECISIONS]
        if all(tried.found.score > BLIND for tried in self.tried):
            plans = self._read()[: DECISIONS + (self.free - self.spent) // full]
        return before.found, self._decided(before, plans, full)

    def _grown(self, base: Tried, changes: list[Change], cost: int) -> list[Tried]:
        """What pilots find better than what it grew from: changes, pairs of the best ones, and a third to those."""
        singles = self._with(base, changes, cost)
        alone = [tried for tried in self.tried if len(tried.plan) == 1 and tried.cost == cost]
        # A softmax too many, or inputs of a wrong size, may hide behind another fault: then alone they show nothing.
        alone.sort(key=lambda tried: (tried.plan[0].slot not in ("inputs", "outputs"), _score(tried)))
        pool = [tried.plan[0] for tried in alone]
        leads: dict[str, Tried] = {}
        for single in singles:
            leads.setdefault(single.plan[0].slot, single)
        grown = list(leads.values())[:LEADS]
        for lead in tuple(grown):
            grown += self._with(lead, pool, cost)[:1]
        if grown:
            grown += self._with(min(grown, key=_score), pool, cost)[:1]
        return grown

    def _read(self) -> list[Plan]:
        """Where all pilots stay at a guess: single changes by the readings of their start, for longer pilots."""
        alone = (tried.plan for tried in tuple(self.tried) if len(tried.plan) == 1)
        read = [found for plan in alone if (found := self.judged(plan, 0))]
        self.tried, self.spent = [tried for tried in self.tried if tried.cost], self.spent + READINGS * len(read)
        return [tried.plan for tried in sorted(read, key=lambda tried: tried.found.score)]

    def _with(self, leading: Tried, pool: list[Change], cost: int) -> list[Tried]:
        """Pilots of a plan and one change more, of those that lower its loss clearly; the best is first."""
        taken = {change.slot for change in leading.plan}
        free = [change for change in pool if change.slot not in taken][: COMPANIONS if taken else None]
        known = {tried.name for tried in self.tried if tried.cost == cost}
        plans = [plan for plan in (ordered((*leading.plan, change)) for change in free) if named(plan) not in known]
        found = [self.judged(plan, cost, leading) for plan in plans if self.spent + cost <= self.free]
        ahead = [tried for tried in found if tried and _score(tried) < _score(leading) - CLEARLY]
        return sorted(ahead, key=_score)

    def _decided(self, before: Tried, plans: list[Plan], full: int) -> Tried | None:
        """The plan that a longer forecast finds best; one with more changes must be worth it."""
        leading: Tried | None = None
        for plan in sorted(plans, key=len):
            candidate = self.judged(plan, full)
            same = leading is not None and len(leading.plan) == len(plan)
            limit = _score(leading or before) - (0.0 if same else WORTH)
            if candidate is not None and _score(candidate) < limit:
                leading = candidate
        return leading

    def gains(self, plan: Plan) -> dict[str, float]:
        """By how much each change of a plan lowered the logarithm of the loss of a pilot when it was added."""
        tried = next((tried for tried in self.tried if tried.name == named(ordered(plan)) and tried.parent), None)
        found: dict[str, float] = {}
        while tried is not None and tried.parent is not None:
            (added,) = (change.name for change in tried.plan if change not in tried.parent.plan)
            found[added] = _score(tried.parent) - _score(tried)
            tried = tried.parent
        return found

    def judged(self, plan: Plan, cost: int, parent: Tried | None = None) -> Tried | None:
        """The forecast of the network with these changes; None where they cannot be made, with the reason kept."""
        name = named(plan)
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
        self.tried.append(Tried(plan, found, cost, parent))
        return self.tried[-1]


def named(plan: Plan) -> str:
    """The names of the changes."""
    return " + ".join(change.name for change in plan) or "as it is"


def _score(tried: Tried) -> float:
    """The logarithm of the loss that the pilot came to; scores are in units of a guess, or of the start without one."""
    found = tried.found
    unit = found.guess if found.guess > 0 else abs(found.first_loss)
    return found.score + (math.log(unit) if 0 < unit < math.inf else 0.0)


def budget(cost: int, changes: int) -> tuple[int, int, int]:
    """Gradients of a forecast that decides and of a pilot, and for how many changes there are pilots."""
    full = max(LEAST_COST, min(FULL, cost // (DECISIONS + 4)))
    left = cost - (1 + DECISIONS) * full
    pilots = 1 + changes + (LEADS + 1) * min(changes, COMPANIONS)
    screen = max(LEAST_COST, min(MOST, left // pilots), min(LEAST, left // 2))
    return full, screen, max(1, min(changes, left // screen - 1))


def kept(store: Store | None, key: str, words: list[Any], measure: Callable[[], Reading]) -> Reading:
    """What `measure` takes, or took before an interruption."""
    if store is None:
        return measure()
    name = hashlib.sha256(json.dumps([key, words], sort_keys=True).encode()).hexdigest()[:32]
    return store.compute(name, measure)
