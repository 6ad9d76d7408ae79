"""The Jacobians view: three topics, each with controls of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from skiplens.core.progress import Progress
from skiplens.explorer.control import Choice, Control
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.view import Values, View
from skiplens.explorer.views.jacobians.matrix_controls import MATRIX_CONTROLS
from skiplens.explorer.views.jacobians.mnist_blocks import MeasuredBlocks, measured_blocks
from skiplens.explorer.views.jacobians.theorem_controls import THEOREM_CONTROLS
from skiplens.explorer.views.jacobians.topics import draw_block, draw_layer, draw_theorem

TOPIC = Choice(
    "topic",
    "Look at",
    help="One random layer, whole blocks with different shortcuts, or what the convergence theorem asks for.",
    options=(("layer", "a layer"), ("block", "blocks"), ("theorem", "the theorem")),
    default="layer",
)
CONTROLS: tuple[Control, ...] = (TOPIC, *MATRIX_CONTROLS, *THEOREM_CONTROLS)


@dataclass(frozen=True)
class JacobiansView(View):
    """Singular values of layers and blocks, and the checklist of the convergence theorem."""

    name: ClassVar[str] = "jacobians"
    title: ClassVar[str] = "Jacobians"
    lead: ClassVar[str] = (
        "Do the layers keep every direction of the gradient alive, and is gradient descent sure to arrive?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The pictures of the chosen topic."""
        if values["topic"] == "theorem":
            return draw_theorem(values)
        return draw_layer(values) if values["topic"] == "layer" else draw_block(values, measured)

    def measurement(self, values: Values) -> Values | None:
        """Scale and seed, where the MNIST networks are asked for."""
        if values["topic"] != "block" or not values["mnist"]:
            return None
        return {name: values[name] for name in ("scale", "seed")}

    def measure(self, values: Values, progress: Progress) -> MeasuredBlocks:
        """The second block of the paper's networks."""
        return measured_blocks(values["scale"], values["seed"], progress)
