"""Guided walks: six steps through the views of each paper, with the place where what is printed is false."""

from dataclasses import dataclass

from skiplens.explorer.control import query_of, read, words_of
from skiplens.explorer.view import Drawing, View
from skiplens.explorer.written import written


@dataclass(frozen=True)
class Step:
    """A place of a view and what is to be seen there; `{label}` stands for the fact of that label.

    At a step that is `false_in_print` the paper says something else, and the page says so.
    """

    query: str
    words: str
    false_in_print: bool = False

    def told(self, drawing: Drawing) -> str:
        """The words with the numbers of the drawing; one that it does not have is an ellipsis."""
        return self.words.format_map(_Facts(drawing.facts))


class _Facts(dict[str, str]):
    def __missing__(self, label: str) -> str:
        return "…"


WALKS = {
    name: (walk["paper"], tuple(Step(**step) for step in walk["steps"])) for name, walk in written("walks.json").items()
}
"""The paper and the steps of each view that has a walk."""


def canonical(view: View, query: str) -> str:
    """The query as the page writes it: with every control."""
    words = words_of(query)
    controls = view.controls(words)
    return query_of(controls, read(controls, words).values)


def place(view: View, query: str) -> int | None:
    """The number of the first step that stands at `query`, from 0; None beside the way."""
    steps = WALKS[view.name][1] if view.name in WALKS else ()
    return next((number for number, step in enumerate(steps) if canonical(view, step.query) == query), None)
