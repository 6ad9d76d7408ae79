"""The paths view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from skiplens.core.progress import Progress
from skiplens.explorer.control import Control
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.view import Values, View
from skiplens.explorer.views.paths.controls import CONTROLS, NETWORK
from skiplens.explorer.views.paths.network import draw_network, measure_network
from skiplens.explorer.views.paths.theory import draw_theory


@dataclass(frozen=True)
class PathsView(View):
    """Which path lengths carry the signal."""

    name: ClassVar[str] = "paths"
    title: ClassVar[str] = "Paths"
    lead: ClassVar[str] = (
        "A residual network is a crowd of paths: each block is passed or skipped. Which lengths carry the signal?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The depth and β of the theory, or a network and the factor of its branches."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The theory's curves, or the measured spectrum."""
        return draw_network(values, measured) if values["look_at"] == NETWORK else draw_theory(values)

    def measurement(self, values: Values) -> Values | None:
        """The network, its seed and the factor."""
        if values["look_at"] != NETWORK:
            return None
        return {name: values[name] for name in ("model", "factor", "seed")}

    def measure(self, values: Values, progress: Progress) -> Any:
        """The spectra of the network before and after scaling."""
        return measure_network(values, progress)
