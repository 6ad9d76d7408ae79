"""Write docs/paper_figures.md, every figure of the papers beside ours: `python -m tools.paper_figures FOLDER`.

Ours are drawn from the laptop runs in FOLDER (`skiplens reproduce all --out FOLDER`; what is missing is run), and those
of images from the readings of a GPU in results/gpu. Without FOLDER the pictures stay and the page's words are new.
"""

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from tools.claims_page import kept, word
from tools.doc_figures.drawing import FOLDER, with_dark_look

from skiplens.papers.reproduction import reproduce
from skiplens.papers.study import Item, Study, choose
from skiplens.plots.figure import Figure
from skiplens.plots.matplotlib_file import save_figure
from tools import image_results

PAGE = FOLDER.parent / "paper_figures.md"
PRINTED = {"fig": "Figure", "table": "Table"}
HEAD = """# The papers' figures beside ours

Each figure and table of the four papers that shows numbers, and the one we draw for it: from runs at preset laptop,
seed 0, or, where *GPU* stands behind a word, from networks trained on CIFAR-10. `skiplens reproduce STUDY/ITEM` draws
all figures of an item; [Every claim](claims.md) has the numbers. Where there is no picture, nothing has been trained.
"""


def shown() -> Iterator[tuple[Study, Item]]:
    """The items that are figures or tables."""
    return ((study, item) for study, item in choose("all") if item.name.startswith(tuple(PRINTED)))


def pictures(study: Study, item: Item) -> list[Path]:
    """The drawings of an item."""
    return sorted(FOLDER.glob(f"papers_{study.name}_{item.name}_*.svg"), reverse=True)  # rates fall, as in the paper


def draw(folder: Path) -> None:
    """Draw the first figure of each item, and all of those from a GPU."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the files
    trained = {(result.study.name, result.item.name): result.figures for result in image_results.judged().results}
    here = [pair for pair in shown() if (pair[0].name, pair[1].name) not in trained]
    found = {(result.study.name, result.item.name): result.figures for result in reproduce(here, folder).results}
    for study, item in shown():
        name = (study.name, item.name)
        for path in pictures(study, item):
            path.unlink()
        for figure in trained[name] if name in trained else found[name][:1]:
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
    for place in sys.argv[1:]:
        draw(Path(place))
    PAGE.write_text(page(), "utf-8")
