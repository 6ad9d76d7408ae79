"""The curvature view's controls, and how its parts come together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from skiplens.explorer.control import Choice, Control, Slider
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.view import Values, View
from skiplens.explorer.views.curvature.code import code
from skiplens.explorer.views.curvature.conditioning import condition_against_depth
from skiplens.explorer.views.curvature.eigenvalues import eigenvalue_picture
from skiplens.explorer.views.curvature.networks import Setting
from skiplens.explorer.views.curvature.way_down import loss_on_the_way_down
from skiplens.explorer.views.curvature.words import facts, rows, what_you_see

CONTROLS: tuple[Control, ...] = (
    Slider(
        "branch_depth",
        "Shortcut depth n",
        help="How many weight matrices each shortcut jumps over; 0 is a plain network without shortcuts.",
        low=0,
        high=4,
        default=2,
        whole=True,
    ),
    Slider(
        "depth",
        "Network depth",
        help="How many weight matrices the network has; as many as make whole units are used.",
        low=1,
        high=32,
        default=16,
        whole=True,
    ),
    Choice(
        "initialisation",
        "Start of training",
        help="Where the weights start: very small, Gaussian of the size that keeps signals (Xavier), or orthogonal.",
        options=(("near_zero", "near zero"), ("xavier", "Xavier"), ("orthogonal", "orthogonal")),
        default="near_zero",
    ),
    Choice(
        "data",
        "Data",
        help="What is learned: handwritten digits, a random linear map, a rotation, or a map close to the identity.",
        options=(("digits", "digits"), ("random", "random map"), ("rotation", "rotation"), ("near", "near identity")),
        default="digits",
    ),
    Slider(
        "width",
        "Width",
        help="Features of input, output and every layer; of digits so many classes and whitened components.",
        low=2,
        high=4,
        default=4,
        whole=True,
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights where training starts: the same seed draws the same ones.",
        low=0,
        high=99,
        default=0,
        whole=True,
    ),
)

NOTES = (
    "Linear networks with square loss, as in Li, Jiao, Han and Weissman 2016, Demystifying ResNet; Hessians are exact.",
    "The condition number is the largest |eigenvalue| over the one that a tenth of all lie below.",
    "Digits are averaged to 7 × 7 pixels and whitened.",
)


@dataclass(frozen=True)
class CurvatureView(View):
    """Eigenvalues at zero and where training starts, condition number against depth, loss on the way down."""

    name: ClassVar[str] = "curvature"
    title: ClassVar[str] = "Curvature"
    lead: ClassVar[str] = (
        "How does the loss bend where training starts, and why are shortcuts over two matrices special?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """Everything is exact and quick."""
        setting = Setting.of(values)
        return Drawing(
            figures=(
                eigenvalue_picture(setting),
                condition_against_depth(setting),
                loss_on_the_way_down(setting),
            ),
            says=what_you_see(setting),
            facts=facts(setting),
            rows=rows(setting),
            code=code(setting),
            notes=NOTES,
        )
