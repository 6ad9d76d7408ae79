"""A study of nothing, to test what all studies share; its settings and measure are importable."""

from collections.abc import Sequence

import torch

from skiplens.base.settings import Settings, option
from skiplens.papers.statistics import Band, decide, over_seeds, stacked
from skiplens.papers.study import Claim, Item, Judgement, PaperCard, Study, Table
from skiplens.plots.figure import Figure, Points
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import grid

REPEATED = 8


class Coin(Settings):
    """Throws of a coin."""

    throws: int = option(1000, "how many")
    broken: bool = option(False, "whether the measure fails")
    replicate: int = option(0, "which repetition")
    seed: int = option(0, "names every draw")


def throw(settings: Coin) -> dict[str, torch.Tensor]:
    if settings.broken:
        raise RuntimeError("the coin rolled away")
    generator = torch.Generator().manual_seed(1000 * settings.seed + settings.replicate)
    return {"heads": torch.rand(settings.throws, generator=generator, dtype=torch.float64) < 0.5}


def judge(readings: Sequence[Measurement], share: float) -> Judgement:
    heads = stacked(readings, "heads", "throw").double().mean(1)
    return decide(over_seeds(heads), Band.around(share, 0.1), "Share of heads.")


def study(broken: bool = False) -> Study:
    def runs(preset: str, seed: int) -> list[Run]:
        coins = grid(Coin(broken=broken), replicate=range(REPEATED), seed=(seed,))
        return [Run("tests.papers.small_study:throw", coin) for coin in (*coins, *coins)]

    claims = (
        Claim("fair", "Half of the throws are heads.", "Eq. 1", "0.5", lambda readings: judge(readings, 0.5)),
        Claim("unfair", "All throws are heads.", "Eq. 2", "1", lambda readings: judge(readings, 1.0)),
    )
    item = Item("coin", "a <coin>", runs, claims, _figures, _tables, ("Our coin is not of gold.",))
    card = PaperCard("On coins", "A. Thrower", 1900, "nowhere", "Is it fair?", "errata/none.md")
    return Study("small", card, (item,))


def _figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    heads = stacked(readings, "heads").double().mean(1).tolist()
    points = Points(tuple(map(float, range(len(heads)))), tuple(heads))
    return (Figure("heads", "Heads", "Half of them.", "repetition", "share", (points,)),)


def _tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    rows = [{"replicate": one.setting("replicate"), "heads": float(one["heads"].double().mean())} for one in readings]
    return (Table("heads", (*rows, {"replicate": "all", "comment": "a, b"})),)


STUDY = study()
