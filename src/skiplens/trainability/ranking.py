"""Several networks on the same data, best first, and whether their order is decided."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from skiplens.base import InvalidInputError, Progress, SkiplensError, silent
from skiplens.base.preserve_state import preserve_random_state
from skiplens.base.words import in_words, span
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import Loss
from skiplens.trainability.forecast import forecast
from skiplens.trainability.optimizers import Factory
from skiplens.trainability.reading import DIVERGES, Forecast

WIDTH = 2 * 1.645  # of a 90 % interval in standard deviations
DECIDED = 1.645  # standard deviations between two networks from which on their order is decided, with 95 %


@dataclass(frozen=True)
class Place:
    """One network in a ranking.

    Attributes:
        name: What it is called.
        forecast: What is expected of it.
        ahead: In how many standard deviations it is ahead of the next one; NaN for the last.
        why: What separates it from the next one, in one sentence.
    """

    name: str
    forecast: Forecast
    ahead: float
    why: str


@dataclass(frozen=True)
class Ranking:
    """Networks on the same data, best first.

    Example:
        ranking = sl.rank({"plain": plain, "residual": residual}, data)
        print(ranking.best.name, ranking[0].why)
    """

    places: tuple[Place, ...]
    failed: Mapping[str, str]
    """Why some could not be judged."""

    @property
    def best(self) -> Place:
        """The first."""
        return self.places[0]

    def __iter__(self) -> Iterator[Place]:
        """Best first."""
        return iter(self.places)

    def __len__(self) -> int:
        """How many were judged."""
        return len(self.places)

    def __getitem__(self, place: int) -> Place:
        """The network at that place, the best at 0."""
        return self.places[place]

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The ranking as a table."""
        return tuple(
            {
                "place": number,
                "network": place.name,
                "forecast": place.forecast.word,
                "loss": in_words(place.forecast.loss),
                "90 %": span(*place.forecast.interval),
                "rate": in_words(place.forecast.rate, 2),
                "before the next one": place.why,
            }
            for number, place in enumerate(self.places, 1)
        )

    def __str__(self) -> str:
        """One line a network, best first."""
        return "\n".join(f"{number}. {place.name}: {place.forecast.sentence}" for number, place in enumerate(self, 1))

    def to_json(self) -> dict[str, Any]:
        """The ranking in words that JSON has."""
        return {"places": [dict(row) for row in self.rows()], "failed": dict(self.failed)}


@preserve_random_state()
def rank(  # noqa: PLR0913 - the model, its data, and keywords of which each has a default
    models: Mapping[str, nn.Module],
    data: Any,
    *,
    loss: Loss = None,
    optimizer: str | Factory = "adam",
    steps: int = 400,
    cost: int = 70,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress = silent,
) -> Ranking:
    """The networks in the order of what `forecast` expects of them; all see the same batches.

    Args:
        models: Networks by the names that the ranking calls them by.
        data: As for `forecast`, or by the same names data for each.
        loss: As for `forecast`.
        optimizer: As for `forecast`.
        steps: As for `forecast`.
        cost: Of each network.
        seed: Names every random draw.
        memory: As for `forecast`, of one network at a time.
        progress: Called as the work goes on.

    A network that cannot be judged is in `failed` with its reason; it is an error if none can.
    """
    if not isinstance(models, Mapping) or not models:
        raise InvalidInputError('Hand over the networks by name, e.g. rank({"a": model_a, "b": model_b}, data).')
    if isinstance(data, Iterator):
        data = list(data)
    of_each = data if isinstance(data, Mapping) and data.keys() == models.keys() else dict.fromkeys(models, data)
    forecasts: dict[str, Forecast] = {}
    failed: dict[str, str] = {}
    asked = {"loss": loss, "optimizer": optimizer, "steps": steps, "cost": cost, "seed": seed, "memory": memory}
    for number, (name, model) in enumerate(models.items()):
        progress(f"forecast of {name}", number, len(models))
        try:
            forecasts[name] = forecast(model, of_each[name], **asked)
        except SkiplensError as error:
            failed[name] = first_line(error)
    if not forecasts:
        raise InvalidInputError(f"None of the networks can be judged. {next(iter(failed.values()))}")
    ordered = sorted(forecasts.items(), key=lambda entry: entry[1].score)
    following = [*(found for _, found in ordered[1:]), None]
    places = (_place(name, found, after) for (name, found), after in zip(ordered, following, strict=True))
    return Ranking(tuple(places), failed)


def _place(name: str, found: Forecast, after: Forecast | None) -> Place:
    if after is None:
        return Place(name, found, math.nan, "")
    ahead = _ahead(found, after)
    if ahead < DECIDED:
        return Place(name, found, ahead, "not decided: the intervals overlap too far")
    cause = after.cause
    if cause is not None:
        return Place(name, found, ahead, f"decided; the next one: {cause.sentence}")
    return Place(name, found, ahead, f"decided: {in_words(after.loss / found.loss, 2)} times lower loss")


def _ahead(found: Forecast, after: Forecast) -> float:
    """How far expected losses are apart, in standard deviations of ln loss; errors are taken as independent."""
    if after.word == DIVERGES or found.word == DIVERGES:
        return math.inf if found.word != after.word else 0.0
    spread = math.hypot(_deviation(found), _deviation(after))
    apart = math.log(after.loss / found.loss) if found.loss > 0 else math.inf
    return max(0.0, apart) / spread if spread > 0 else math.inf


def _deviation(found: Forecast) -> float:
    low, high = found.interval
    if low == 0.0 < found.loss:  # open below: the side above tells
        low = found.loss**2 / high
    return math.log(high / low) / WIDTH if 0 < low < high < math.inf else 0.0
