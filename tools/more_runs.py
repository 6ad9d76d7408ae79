"""Claims that the laptop preset leaves undecided, with more runs: `python -m tools.more_runs [FOLDER [NAME …]]`.

The number of runs and a seed that no rule had seen were chosen before the runs. Each run is stored in FOLDER when it is
done; the same command goes on. Readings of figure 8 are put into results/more_runs/readings.tar.xz. All claims whose
runs are complete there are judged, and verdicts.json is written; without FOLDER that is all that happens.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tools.kept_readings import RESULTS, archive, collect, unpack

from skiplens.papers.li2016_shortcuts.learning_rates import fig8_runs
from skiplens.papers.macdonald2023_regularity import fig2
from skiplens.papers.statistics import replicated
from skiplens.papers.study import Verdict, study
from skiplens.readings.store import Store
from skiplens.sweeps.executor import LocalWorkers, available_cores
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import sweep

PLACE = RESULTS / "more_runs/verdicts.json"


class More(NamedTuple):
    """Runs of an item, and the claims that they judge."""

    study: str
    item: str
    claims: tuple[str, ...]
    runs: Sequence[Run]
    said: str


def composites(trials: int, seed: int) -> list[Run]:
    """Those of the laptop preset in more trials."""
    one = next(run for run in fig2.runs("laptop", seed) if run.measure.endswith(":digit_composites"))
    return replicated(fig2.digit_composites, one.settings, trials, seed)  # type: ignore[type-var]  # they are its own


def starts(family: str, wanted: dict[int, tuple[int, float]], seed: int) -> list[Run]:
    """Networks of figure 8: for each depth so many starts, with the rates of the laptop preset from 10^exponent on."""
    found = []
    for run in fig8_runs("laptop", seed):
        own: Any = run.settings
        if own.family == family and own.depth in wanted:
            count, lowest = wanted[own.depth]
            kept = tuple(exponent for exponent in own.exponents if exponent >= lowest)
            found.append(replace(run, settings=replace(own, networks=count, exponents=kept)))
    return found


def at_rates(runs: Iterable[Run], exponents: tuple[float, ...]) -> list[Run]:
    """The same at these rates only."""
    return [replace(run, settings=replace(run.settings, exponents=exponents)) for run in runs]  # type: ignore[call-arg]


EVERY_RATE = -3.0
# By the widths of the seeds 0 and 4. Where rates are left out, those that are lower had ended at least twice as high.
SHORTCUTS = {4: (120, EVERY_RATE), 8: (120, EVERY_RATE), 16: (160, -0.5), 32: (160, -0.5), 64: (160, -0.5)}
HALF = {"xavier": 120, "orthogonal": 600, "2-shortcut": 600}
PLAIN = {8: (120, -1.0), 16: (120, -1.0), 32: (24, EVERY_RATE), 64: (16, EVERY_RATE)}

MORE = {
    "composite": More(
        "macdonald2023_regularity", "fig2", ("composite",), composites(100, 3), "100 trials of seed 3 instead of five."
    ),
    "two_shortcut": More(
        "li2016_shortcuts",
        "fig8",
        ("trend", "low"),
        starts("2-shortcut", dict.fromkeys(SHORTCUTS, (24, EVERY_RATE)), 4),
        "24 starts of seed 4 instead of eight.",
    ),
    "deeper": More(
        "li2016_shortcuts",
        "fig8",
        ("deeper",),
        starts("2-shortcut", SHORTCUTS, 5),
        "120 to 160 starts of seed 5 instead of eight.",
    ),
    "plain": More(
        "li2016_shortcuts",
        "fig8",
        ("turning_point",),
        [run for family in ("xavier", "orthogonal") for run in starts(family, PLAIN, 5)]
        + starts("2-shortcut", {depth: SHORTCUTS[depth] for depth in (16, 32, 64)}, 5),
        "120 starts of seed 5 up to depth 16, 160 of 2-shortcut, 24 and 16 of plain networks of 32 and 64.",
    ),
}
# By the mean and the width of seed 5, which left it open at depth 16 alone. 10^-0.5 was the best rate of all three
# families there, and at 10^0 at least one of 120 starts of each had diverged, so of 600 one will.
MORE["half"] = More(
    "li2016_shortcuts",
    "fig8",
    ("half_from_16",),
    at_rates([run for family in HALF for run in starts(family, {16: (HALF[family], EVERY_RATE)}, 6)], (-1.0, -0.5))
    + [run for run in MORE["plain"].runs if run.settings.depth > 16],  # type: ignore[attr-defined]  # they have one
    "At depth 16 600 starts of seed 6 (Xavier: 120); deeper ones are those of seed 5.",
)


def judged(more: More, readings: Sequence[Any]) -> list[Verdict]:
    """The verdicts of its claims."""
    item, found = study(more.study).item(more.item), []
    for claim in (claim for claim in item.claims if claim.name in more.claims):
        said = (claim.name, claim.statement, claim.printed_at, claim.paper)
        judgement = claim.judge(readings)
        own = {**vars(judgement), "explanation": f"{judgement.explanation} {more.said}"}
        found.append(Verdict(more.study, more.item, *said, **own, deviations=item.deviations))
    return found


def said_by(place: Path) -> list[Verdict]:
    """What a folder's readings say: the verdicts of every name whose runs are all in its store."""
    store, found = Store(place / "store"), []
    for more in MORE.values():
        if all(store.path(run.key).exists() for run in more.runs):
            found += judged(more, [store.load(run.key) for run in more.runs])
    return found


def kept() -> list[Verdict]:
    """What the archive says."""
    with tempfile.TemporaryDirectory() as place:
        unpack(archive("more_runs"), Path(place))
        return said_by(Path(place))


def updated(entries: Sequence[dict[str, Any]], found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The entries of verdicts.json with what was found in the place of what was said of the same claims."""
    by_name = {(entry["study"], entry["item"], entry["claim"]): entry for entry in entries}
    by_name |= {(one.study, one.item, one.claim): json.loads(json.dumps(one.to_json())) for one in found}
    return [by_name[name] for name in sorted(by_name)]


def run(folder: Path, names: Iterable[str]) -> list[Verdict]:
    """Do the runs of the names; the readings of figure 8 are kept, those of composites would be a megabyte."""
    for name in names:
        sweep(MORE[name].runs, Store(folder / "store"), LocalWorkers(available_cores()))
    collect([folder], archive("more_runs"), lambda reading: reading.name.startswith("rectified_grid"))
    return said_by(folder)


if __name__ == "__main__":
    done = run(Path(sys.argv[1]), sys.argv[2:] or MORE) if sys.argv[1:] else []
    verdicts = [*done, *kept()]
    for one in verdicts:
        sys.stdout.write(f"{one.name}: {one.verdict} {one.ours} ± {one.uncertainty}\n")
    entries = updated(json.loads(PLACE.read_text("utf-8")), verdicts)
    PLACE.write_text(f"{json.dumps(entries, indent=1, ensure_ascii=False)}\n", "utf-8")
