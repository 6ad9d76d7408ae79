"""Claims that the laptop preset leaves undecided, with more runs: `python results/more_runs/run.py FOLDER [NAME …]`.

The number of runs and a seed that no rule had seen were chosen before the runs. Each run is stored in FOLDER when it is
done; the same command goes on. The verdicts of what is named (by default all) replace theirs in verdicts.json here.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from skiplens.papers.li2016_shortcuts.learning_rates import fig8_runs
from skiplens.papers.macdonald2023_regularity import fig2
from skiplens.papers.statistics import replicated
from skiplens.papers.study import Verdict, study
from skiplens.readings.store import Store
from skiplens.sweeps.executor import LocalWorkers, available_cores
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import sweep

PLACE = Path(__file__).parent / "verdicts.json"


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


def starts(count: int, seed: int) -> list[Run]:
    """2-shortcut networks of figure 8 from more starts."""
    laptop = [run for run in fig8_runs("laptop", seed) if run.settings.family == "2-shortcut"]  # type: ignore[attr-defined]
    return [replace(run, settings=replace(run.settings, networks=count)) for run in laptop]  # type: ignore[call-arg]


MORE = {
    "composite": More(
        "macdonald2023_regularity", "fig2", ("composite",), composites(100, 3), "100 trials of seed 3 instead of five."
    ),
    "two_shortcut": More(
        "li2016_shortcuts", "fig8", ("deeper", "trend", "low"), starts(24, 4), "24 starts of seed 4 instead of eight."
    ),
}


def judged(more: More, readings: Sequence[Any]) -> list[Verdict]:
    """The verdicts of its claims."""
    item, found = study(more.study).item(more.item), []
    for claim in (claim for claim in item.claims if claim.name in more.claims):
        said = (claim.name, claim.statement, claim.printed_at, claim.paper)
        judgement = claim.judge(readings)
        own = {**vars(judgement), "explanation": f"{judgement.explanation} {more.said}"}
        found.append(Verdict(more.study, more.item, *said, **own, deviations=item.deviations))
    return found


def main(folder: Path, names: Sequence[str]) -> None:
    """Do the runs, and keep what they say."""
    kept = {} if not PLACE.exists() else {_name(entry): entry for entry in json.loads(PLACE.read_text("utf-8"))}
    for name in names or MORE:
        runs = MORE[name].runs
        swept = sweep(runs, Store(folder / "store"), LocalWorkers(available_cores()))
        entries = [one.to_json() for one in judged(MORE[name], [swept.readings[run.key] for run in runs])]
        kept |= {_name(entry): entry for entry in entries}
        for entry in entries:
            sys.stdout.write(f"{'/'.join(_name(entry))}: {entry['verdict']} {entry['ours']} ± {entry['uncertainty']}\n")
    text = json.dumps([kept[name] for name in sorted(kept)], indent=1, ensure_ascii=False)
    PLACE.write_text(f"{text}\n", "utf-8")


def _name(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["study"], entry["item"], entry["claim"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
