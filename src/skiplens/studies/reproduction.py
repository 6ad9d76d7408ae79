"""Reproduce items of papers: do their runs, judge their claims, keep what a page needs."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skiplens.figures import Figure
from skiplens.readings import Reading, Store
from skiplens.studies.claim import Judgement
from skiplens.studies.recorded import recorded_verdicts
from skiplens.studies.study import Item, Preset, Study, Table
from skiplens.studies.verdict import Verdict, verdict_of
from skiplens.sweeps import Executor, Run, Swept, sweep
from skiplens.sweeps.ownership import claim_folder
from skiplens.sweeps.standing import Watch, unwatched


@dataclass(frozen=True)
class ItemResult:
    """What came out of one item.

    Attributes:
        study: Its study.
        item: The item.
        verdicts: One for each claim.
        figures: Empty where runs failed.
        tables: Empty where runs failed.
        problems: Why runs failed, each once.
        seconds: Computing time of its runs, those done earlier included.
    """

    study: Study
    item: Item
    verdicts: tuple[Verdict, ...]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    problems: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Reproduction:
    """What came out of all items that were asked for."""

    preset: Preset
    seed: int
    results: tuple[ItemResult, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, in the order of the items."""
        return tuple(verdict for result in self.results for verdict in result.verdicts)

    @property
    def worse(self) -> tuple[Verdict, ...]:
        """The verdicts that are worse than the recorded ones."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_worse)


@dataclass(frozen=True)
class Effort:
    """How large a reproduction is and which random numbers it draws."""

    preset: Preset = "laptop"
    seed: int = 0


def reproduce(
    chosen: Sequence[tuple[Study, Item]],
    folder: Path | str,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    executor: Executor | None = None,
    watch: Watch = unwatched,
    recorded: Path | None = None,
) -> Reproduction:
    """The verdicts, figures and tables of the chosen items.

    Args:
        chosen: Items with their studies, as `catalogue.choose` gives them.
        folder: Runs are kept in its `store/`; a folder belongs to one preset.
        effort: Preset and seed.
        executor: Where runs are done; in this process if not given.
        watch: Called as the runs go on.
        recorded: A verdicts.json to compare with instead of the shipped record.
    """
    words = recorded_verdicts(effort.preset, recorded)
    claim_folder(folder, effort.preset)
    runs = {(study.name, item.name): _runs(item, effort) for study, item in chosen}
    everything = [run for of_item in runs.values() for run in of_item]
    swept = sweep(everything, Store(Path(folder) / "store"), executor, watch)
    results = (_result(study, item, runs[study.name, item.name], swept) for study, item in chosen)
    compared = (_compared(result, words if runs[result.study.name, result.item.name] else {}) for result in results)
    return Reproduction(effort.preset, effort.seed, tuple(compared))


def _runs(item: Item, effort: Effort) -> tuple[Run, ...]:
    """The item's runs, each once: a reading that stood twice would count as two seeds."""
    return tuple({run.key: run for run in item.runs(effort.preset, effort.seed)}.values())


def _result(study: Study, item: Item, runs: Sequence[Run], swept: Swept) -> ItemResult:
    problems = {swept.failures[run.key].error: None for run in runs if run.key in swept.failures}
    if problems:
        judgement = Judgement("not attempted", explanation=f"Runs failed: {'; '.join(problems)}")
        return ItemResult(study, item, _verdicts(study, item, [judgement] * len(item.claims)), problems=tuple(problems))
    readings = [swept.readings[run.key] for run in runs]
    return ItemResult(
        study,
        item,
        _verdicts(study, item, [claim.judge(readings) for claim in item.claims]),
        item.figures(readings),
        item.tables(readings),
        seconds=_seconds(readings),
    )


def _verdicts(study: Study, item: Item, judgements: Sequence[Judgement]) -> tuple[Verdict, ...]:
    return tuple(
        verdict_of((study.name, item.name), claim, judgement, item.deviations)
        for claim, judgement in zip(item.claims, judgements, strict=True)
    )


def _compared(result: ItemResult, words: Mapping[str, str]) -> ItemResult:
    """With the recorded words; an item without runs lacks its data, which is no worse than having them."""
    verdicts = (dataclasses.replace(verdict, recorded=words.get(verdict.name)) for verdict in result.verdicts)
    return dataclasses.replace(result, verdicts=tuple(verdicts))


def _seconds(readings: Sequence[Reading]) -> float:
    return sum(reading.provenance.seconds for reading in readings)
