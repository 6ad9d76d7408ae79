"""Write docs/paper_figures.md, every figure of the papers beside ours: `python -m tools.paper_figures [FOLDER …]`.

Ours are drawn from the readings that are kept in results/: those of preset laptop, more runs where there are, and those
of images from a GPU. Large ones are not kept, and run anew here (a minute). Readings of FOLDERs (`skiplens reproduce
STUDY/ITEM --out FOLDER`, preset laptop, seed 0) are put into results/laptop/readings.tar.xz first.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from tools.claims_page import kept, word
from tools.doc_figures.drawing import FOLDER, with_dark_look
from tools.kept_readings import archive, collect, is_small, unpack
from tools.more_runs import MORE

from skiplens.papers.study import Item, Study, choose
from skiplens.plots.figure import Figure
from skiplens.plots.matplotlib_file import save_figure
from skiplens.readings.store import Store
from skiplens.sweeps.executor import LocalWorkers, available_cores
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import sweep
from tools import image_results

PAGE = FOLDER.parent / "paper_figures.md"
PRINTED = {"fig": "Figure", "table": "Table"}
OF_IMAGES = ("image_training", "shortcut_training")  # measures that laptop only tries out
MORE_RUNS = {("li2016_shortcuts", "fig8"): ("deeper", "plain")}  # items that are drawn from those
HEAD = """# The papers' figures beside ours

Each figure and table of the four papers that shows numbers, and the first one we draw for it: from runs at preset
laptop, seed 0, or, where *more runs* or *GPU* stands behind a word, from those. All are drawn from readings in
`results/`, without a GPU: `python -m tools.paper_figures`. `skiplens reproduce STUDY/ITEM` draws all figures of an
item; [Every claim](claims.md) has the numbers. Where there is no picture, nothing has been trained.
"""


def shown() -> Iterator[tuple[Study, Item]]:
    """The items that are figures or tables."""
    return ((study, item) for study, item in choose("all") if item.name.startswith(tuple(PRINTED)))


def pictures(study: Study, item: Item) -> list[Path]:
    """The drawings of an item."""
    return sorted(FOLDER.glob(f"papers_{study.name}_{item.name}_*.svg"), reverse=True)  # rates fall, as in the paper


def planned(study: Study, item: Item) -> Sequence[Run]:
    """The runs that a figure which is not from a GPU is drawn from; none where all its networks learn images."""
    more = [run for name in MORE_RUNS.get((study.name, item.name), ()) for run in MORE[name].runs]
    found = {run.key: run for run in more or item.runs("laptop", 0)}
    return [run for run in found.values() if run.measure.rpartition(":")[2] not in OF_IMAGES]


def drawn(study: Study, item: Item, store: Store) -> tuple[Figure, ...]:
    """The first figure of an item; readings that the store lacks are measured."""
    if not (runs := planned(study, item)):
        return ()
    swept = sweep(runs, store, LocalWorkers(available_cores()))
    return item.figures([swept.readings[run.key] for run in runs])[:1]


def draw(place: Path) -> None:
    """Draw the first figure of each item from the kept readings, put into a folder, and all of those from a GPU."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the files
    for shelf in ("laptop", "more_runs"):
        unpack(archive(shelf), place)
    trained = {(result.study.name, result.item.name): result.figures for result in image_results.judged().results}
    for study, item in shown():
        name = (study.name, item.name)
        for path in pictures(study, item):
            path.unlink()
        for figure in trained[name] if name in trained else drawn(study, item, Store(place / "store")):
            _write(figure, FOLDER / f"papers_{study.name}_{item.name}_{figure.name}.svg")


def _write(figure: Figure, path: Path) -> None:
    with mpl.rc_context({"svg.hashsalt": "skiplens"}):
        save_figure(figure, path)
    path.write_text(with_dark_look(path.read_text("utf-8")), "utf-8")


def page() -> str:
    """The page as text."""
    entries, parts = kept()[0], [HEAD]
    for name, items in groupby(shown(), key=lambda pair: pair[0].name):
        study, *_ = choose(name)[0]
        parts.append(f"## {study.card.title}\n")
        for _, item in items:
            own = [entry for entry in entries if (entry["study"], entry["item"]) == (name, item.name)]
            words = ", ".join(f"`{entry['claim']}` {word(entry)}" for entry in own)
            parts.append(f"### {_printed(item.name)}: {item.title}\n\n[In the paper]({_pdf(study)}). {words}.\n")
            parts += [f"![Ours: {item.title}](images/{path.name})\n" for path in pictures(study, item)]
    return "\n".join(parts)


def _printed(name: str) -> str:
    """`fig1a` as the paper prints it."""
    kind = next(kind for kind in PRINTED if name.startswith(kind))
    return f"{PRINTED[kind]} {name.removeprefix(kind)}"


def _pdf(study: Study) -> str:
    return f"https://arxiv.org/pdf/{study.card.link.removeprefix('arXiv:')}"


if __name__ == "__main__":
    collect([Path(folder) for folder in sys.argv[1:]], archive("laptop"), is_small)
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
    PAGE.write_text(page(), "utf-8")
