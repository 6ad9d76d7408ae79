"""Write docs/claims.md, every claim with word, number and interval, from results/: `python tools/claims_page.py`."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from skiplens.papers.study import study
from skiplens.report.gallery import number, shown_word

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/claims.md"
SHELVES = {"gpu": ", GPU", "more_runs": ", more runs"}  # whose words stand in the place of those of a laptop
NO_DATA, NO_GPU = "data not at hand", "needs a GPU"
WORDS = ("reproduced", "corrected", "opposite", "differs", "undecided", "not run")

Entry = Mapping[str, Any]  # of a verdicts.json

HEAD = """# Every claim

All claims of the four papers and of [our own questions](ours.md), as `skiplens reproduce all` judged them: {facts}.

A claim's word needs an interval that holds together with those of all claims of its study ([how](judging.md)). ± is
half its width; nothing stands there for closed forms, and for claims that something holds *always*, whose runs are
older than their intervals. The ten words *opposite* follow from the numbers of the same runs, which were made before
there was that word. Rows with *GPU* behind the word are of preset paper, seed 0, from
[networks trained on one GPU](studies.md#images), those with *more runs* of laptop with more runs of a seed that no rule
had seen (`results/more_runs`). `python tools/claims_page.py` writes this page from the `verdicts.json` of
`results/laptop`, `results/gpu` and `results/more_runs`, which have the explanation of each claim; the runs of the first
took 31 CPU minutes, those of our own questions 18 more.
"""


def page(entries: Sequence[Entry], environment: Mapping[str, Any]) -> str:
    """The page as text."""
    names = ("preset", "seed", "processor", "cores", "python", "torch")
    facts = ", ".join(f"{name} {environment[name]}" for name in names if name in environment)
    parts = [HEAD.format(facts=facts), _counts(entries)]
    for name, found in groupby(entries, key=lambda entry: entry["study"]):
        card = study(name).card
        rows = "\n".join(_row(entry) for entry in found)
        found_at = "errata" if "errata/" in card.errata else "what was found"
        byline = f"{card.authors} ({card.year}), {card.link}; study `{name}`, [{found_at}]({card.errata})."
        parts.append(
            f"## {card.title}\n\n{byline}\n\n"
            f"| claim | printed at | paper | ours | ± | word |\n|---|---|---|---:|---:|---|\n{rows}\n"
        )
    return "\n".join(parts)


def word(entry: Entry) -> str:
    """The word that a reader sees, with the record's where seeds disagree, and where it comes from or what it lacks."""
    shown = shown_word(entry["verdict"], entry["ours"])
    if shown == "not run":
        return f"{shown}, {NO_GPU if 'on a GPU' in entry['explanation'] else NO_DATA}"
    varies = " (varies)" if entry["recorded"] == "varies" else ""
    return shown + varies + SHELVES.get(entry.get("shelf", ""), "")


def _counts(entries: Sequence[Entry]) -> str:
    lines = [f"| study | {' | '.join(WORDS)} |", f"|---|{'---:|' * len(WORDS)}"]
    for name, found in groupby(entries, key=lambda entry: entry["study"]):
        counted = Counter(shown_word(entry["verdict"], entry["ours"]) for entry in found)
        lines.append(f"| `{name}` | {' | '.join(str(counted[one]) for one in WORDS)} |")
    found = Counter(map(word, entries))
    lacking = (
        f"Not run: {found[f'not run, {NO_DATA}']} claims whose data (CIFAR-100, ImageNet) are not at hand, and "
        f"{found[f'not run, {NO_GPU}']} on CIFAR-10 that want a GPU."
    )
    return "\n".join([*lines, "", lacking, ""])


def _row(entry: Entry) -> str:
    width = number(entry["uncertainty"]) if entry["uncertainty"] else ""
    cells = (f"`{entry['item']}/{entry['claim']}`", entry["printed_at"], entry["paper"], number(entry["ours"]), width)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} | {word(entry)} |"


def kept() -> tuple[list[Entry], Mapping[str, Any]]:
    """What results/ has: a claim on which a GPU or more runs have a number is told with that."""
    environment = json.loads((ROOT / "results/laptop/environment.json").read_text("utf-8"))
    found = [{**entry, "shelf": shelf} for shelf in SHELVES for entry in _verdicts(shelf) if entry["ours"] is not None]
    better = {_name(entry): entry for entry in found}
    return [better.get(_name(entry), entry) for entry in _verdicts("laptop")], environment


def _verdicts(shelf: str) -> list[Entry]:
    return json.loads((ROOT / "results" / shelf / "verdicts.json").read_text("utf-8"))


def _name(entry: Entry) -> tuple[str, ...]:
    return entry["study"], entry["item"], entry["claim"]


if __name__ == "__main__":
    PAGE.write_text(page(*kept()), "utf-8")
