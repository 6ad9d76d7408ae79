"""How much is done to prove a suggestion."""

from dataclasses import dataclass

from skiplens.core.errors import SettingsError
from skiplens.core.settings import Settings, option

MOST_SEEDS = 16
"""The exact test goes through 2^seeds signs."""


@dataclass(frozen=True)
class RaceOptions(Settings):
    """Everything that decides the numbers of a verification besides the model and the data."""

    seconds: float = option(40.0, "time for all of it; it decides how many steps a race has")
    steps: int | None = option(None, "steps of each run; none: as many as there is time for")
    seeds: int = option(7, "pairs of runs of each race")
    samples: int = option(512, "training samples: the first ones of the data")
    batch_size: int = option(32, "samples of a step")
    learning_rates: tuple[float, ...] = option((0.1, 0.01, 0.001), "each side races at the best of these")
    momentum: float = option(0.9, "momentum of stochastic gradient descent")
    seed: int = option(0, "names the order of samples of all runs")

    def __post_init__(self) -> None:
        """Refuse values with which no race is possible."""
        super().__post_init__()
        if not 2 <= self.seeds <= MOST_SEEDS:
            raise SettingsError(f"RaceOptions.seeds is {self.seeds}; wanted between 2 and {MOST_SEEDS}.")
        if not self.learning_rates:
            raise SettingsError("RaceOptions.learning_rates is empty; give at least one.")
        for name in ("seconds", "samples", "batch_size"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"RaceOptions.{name} is {getattr(self, name)}; wanted a number above 0.")
