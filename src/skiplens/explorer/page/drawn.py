"""From the words of an address to what a page shows, without a browser."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from skiplens.core.errors import SkiplensError
from skiplens.explorer.address import State, query_of, read
from skiplens.explorer.control import Control
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.exports import TABLE
from skiplens.explorer.measurements import Measurements, Standing
from skiplens.explorer.picture import picture_code
from skiplens.explorer.view import Values, View

_LOG = logging.getLogger(__name__)
_NOTHING = Standing("done")


@dataclass(frozen=True)
class Drawn:
    """What a view shows for some words.

    Attributes:
        view: The view.
        controls: Its controls for these words.
        state: What they stand at.
        drawing: What is shown.
        standing: How far the measurement is; done where there is none.
        problem: Why nothing can be shown.
    """

    view: View
    controls: tuple[Control, ...]
    state: State
    drawing: Drawing
    standing: Standing = _NOTHING
    problem: str = ""

    @property
    def query(self) -> str:
        """The words that say what is shown."""
        return query_of(self.controls, self.state.values)

    @property
    def is_awaited(self) -> bool:
        """Whether there is no picture yet because it has to be measured first."""
        return not self.standing.is_over and not self.drawing.figures

    def export(self, name: str, ending: str = "{ending}") -> str:
        """The address of a file of this drawing."""
        return f"/export/{self.view.name}/{quote(name, safe='')}.{ending}{self.query}"

    @property
    def exports(self) -> Mapping[str, str]:
        """The addresses of all figures' files."""
        return {figure.name: self.export(figure.name) for figure in self.drawing.figures}

    @property
    def table_export(self) -> str:
        """The address of the table's file."""
        return self.export(TABLE, "csv")

    @property
    def picture_code(self) -> str:
        """The Python that draws the same figures; empty where there is none."""
        return picture_code(self.view, self.query)


def draw(view: View, words: Mapping[str, str], measurements: Measurements, wait: bool = False) -> Drawn:
    """What `view` shows for `words`; a measurement is started, and waited for only where `wait` is set."""
    controls = view.controls(words)
    state = read(controls, words)
    try:
        standing = _standing(view, state.values, measurements, wait)
        drawing = view.draw(state.values, standing.result)
        return Drawn(view, controls, state, drawing, standing)
    except SkiplensError as error:
        return Drawn(view, controls, state, Drawing(), problem=str(error))
    except Exception as error:
        _LOG.exception("The view %s cannot be drawn for %s", view.name, state.values)
        return Drawn(view, controls, state, Drawing(), problem=f"This cannot be drawn: {type(error).__name__}: {error}")


def _standing(view: View, values: Values, measurements: Measurements, wait: bool) -> Standing:
    wanted: Any = view.measurement(values)
    if wanted is None:
        return _NOTHING
    return measurements.wait(view, wanted) if wait else measurements.ask(view, wanted)
