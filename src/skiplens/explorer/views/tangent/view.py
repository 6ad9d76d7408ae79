"""The tangent view's controls, and how its parts come together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from skiplens.core.progress import Progress
from skiplens.explorer.control import Choice, Control, Slider, Switch
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.view import Values, View
from skiplens.explorer.views.tangent.against_angle import ANGLES, kernel_against_angle, relative_kernel
from skiplens.explorer.views.tangent.against_scale import growth_against_scale
from skiplens.explorer.views.tangent.architectures import TITLES, Setting
from skiplens.explorer.views.tangent.code import code
from skiplens.explorer.views.tangent.fluctuation import variance_against_depth, variance_against_width
from skiplens.explorer.views.tangent.sampling import Sampled, Sampling
from skiplens.explorer.views.tangent.words import facts, what_you_see

CONTROLS: tuple[Control, ...] = (
    Choice(
        "architecture",
        "Architecture",
        help="The network that the numbers and the sampled networks are of; all three curves are always drawn.",
        options=(("resnet", "ResNet"), ("densenet", "DenseNet"), ("vanilla", "vanilla (no skips)")),
        default="resnet",
    ),
    Slider(
        "depth",
        "Depth L",
        help="How many residual blocks, or layers, follow each other.",
        low=1,
        high=100,
        default=20,
        whole=True,
        logarithmic=True,
    ),
    Slider(
        "branch_depth",
        "Branch depth m",
        help="How many weight matrices the branch beside each skip has; there is a ReLU between any two of them.",
        low=1,
        high=4,
        default=2,
        whole=True,
    ),
    Slider(
        "branch_scale",
        "Branch scale α",
        help="How strong each matrix of a branch is: a block adds α^m times the squared signal that enters it.",
        low=0.01,
        high=2.0,
        default=0.3,
        logarithmic=True,
    ),
    Slider(
        "mark",
        "Marked scale a",
        help="Marks the scale α = a·L^(−1/m), at which signal and kernel stay bounded at every depth.",
        low=0.1,
        high=2.0,
        default=1.0,
        step=0.1,
    ),
    Slider(
        "width",
        "Width n",
        help="Units in each layer of a finite network; the smooth curves are for infinitely many.",
        low=20,
        high=1000,
        default=100,
        whole=True,
        logarithmic=True,
    ),
    Choice(
        "trained",
        "Trained layers",
        help="Whether only the matrices between the first and the last layer learn, as in the paper, or all of them.",
        options=(("branches", "all but first and last"), ("all", "all")),
        default="branches",
    ),
    Switch(
        "sampled",
        "Draw finite networks",
        help="Draws networks of this width with random weights and shows the kernel of each.",
        default=True,
    ),
    Slider(
        "networks",
        "Networks drawn",
        help="How many finite networks; more of them give a steadier mean and take longer.",
        low=5,
        high=100,
        default=20,
        step=5,
        whole=True,
        only_when=("sampled", (True,)),
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights: the same seed draws the same networks.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=("sampled", (True,)),
    ),
)

NOTES = (
    "Formulas of Littwin and Wolf 2020, Residual Tangent Kernels, as corrected; variances are exact, not bounds.",
    "Sampled kernels are divided by the exact mean at equal inputs.",
)


@dataclass(frozen=True)
class TangentView(View):
    """Kernel against angle, spread against depth and width, growth against scale."""

    name: ClassVar[str] = "tangent"
    title: ClassVar[str] = "Tangent"
    lead: ClassVar[str] = (
        "Which inputs does an architecture tell apart, and how far is a finite network from its limit?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The infinitely wide curves and exact variances, with sampled networks once there are some."""
        setting, sampled = Setting.of(values), measured if isinstance(measured, Sampled) else None
        curves = {architecture: relative_kernel(setting.kernel(architecture)) for architecture in TITLES}
        return Drawing(
            figures=(
                kernel_against_angle(setting, curves, sampled),
                variance_against_depth(setting, sampled),
                variance_against_width(setting, sampled),
                growth_against_scale(setting),
            ),
            says=what_you_see(setting, curves),
            facts=facts(setting),
            code=code(setting, ANGLES, _sampling(values) if values["sampled"] else None),
            notes=NOTES,
        )

    def measurement(self, values: Values) -> Values | None:
        """All that sampled networks depend on: everything but the marked scale."""
        if not values["sampled"]:
            return None
        residual = ("branch_depth", "branch_scale") if values["architecture"] == "resnet" else ()
        names = ("architecture", "depth", "width", "trained", "networks", "seed", *residual)
        return {name: values[name] for name in names}

    def measure(self, values: Values, progress: Progress) -> Sampled:
        """Random finite networks of the chosen architecture."""
        return _sampling(values).draw(progress)


def _sampling(values: Values) -> Sampling:
    known = {control.name: control.default for control in CONTROLS} | dict(values)
    return Sampling(Setting.of(known).network(), values["networks"], values["seed"], values["trained"])
