"""Linear networks of one setting: their weights where training starts, and their Hessians there and at zero."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.data.images import as_floats, sample
from skiplens.data.preprocessing import fit_whitening
from skiplens.explorer.view import Values
from skiplens.linalg.second_moments import SecondMoments, second_moments
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.linear import LinearUnit, linear_hessian, plain_units, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.spectrum import listed_spectrum
from skiplens.plots.figure import Figure, Line, Mark, Reference, colour, numbers
from skiplens.zoo.weight_laws import Law, orthogonal_weights, scaled, xavier_weights

Start = Literal["near_zero", "xavier", "orthogonal"]

LAWS: dict[Start, Law] = {
    "near_zero": scaled(xavier_weights, 0.01),
    "xavier": xavier_weights,
    "orthogonal": orthogonal_weights,
}


def initial_weights(start: Start, matrices: int, width: int, seed: int) -> Tensor:
    """Square weight matrices drawn by the law of a start, (matrices, width, width)."""
    generator = Randomness(seed).torch()
    return torch.stack([LAWS[start]((width, width), generator) for _ in range(matrices)])


def units_of(weights: Tensor, branch_depth: int) -> tuple[LinearUnit, ...]:
    """The network of these matrices; without shortcuts if there are no branches."""
    return shortcut_units(weights, branch_depth) if branch_depth else plain_units(weights)


TaskName = Literal["digits", "random", "rotation", "near"]


@dataclass(frozen=True)
class Setting:
    """A linear network with its start and its task.

    Attributes:
        branch_depth: Weight matrices that each shortcut jumps over (n); 0 for no shortcuts.
        depth: Weight matrices asked for; as many as make whole units are there.
        initialisation: The law of the weights where training starts.
        data: The task.
        width: Features of input, output and every layer.
        seed: Names the weights.
    """

    branch_depth: int = 2
    depth: int = 16
    initialisation: Start = "near_zero"
    data: TaskName = "digits"
    width: int = 4
    seed: int = 0

    @classmethod
    def of(cls, values: Values) -> "Setting":
        """The setting that the values of the controls describe."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    @property
    def units(self) -> int:
        """Residual units that fit into the depth, at least one; single matrices without shortcuts."""
        return max(1, self.depth // max(1, self.branch_depth))

    @property
    def matrices(self) -> int:
        """Weight matrices that are there."""
        return self.units * max(1, self.branch_depth)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.matrices * self.width**2

    @cached_property
    def moments(self) -> SecondMoments:
        """All that a linear network sees of the task."""
        return second_moments(*task(self.data, self.width))

    @cached_property
    def start(self) -> tuple[LinearUnit, ...]:
        """The network where training starts."""
        weights = initial_weights(self.initialisation, self.matrices, self.width, self.seed)
        return units_of(weights, self.branch_depth)

    @cached_property
    def eigenvalues_at_zero(self) -> Tensor:
        """All eigenvalues of the Hessian where all weights are zero, ascending."""
        if self.branch_depth == 0:
            zeros = torch.zeros(self.matrices, self.width, self.width, dtype=torch.float64)
            return torch.linalg.eigvalsh(linear_hessian(units_of(zeros, 0), self.moments))
        point = hessian_at_zero(*task(self.data, self.width), self.units, self.branch_depth)
        if self.branch_depth == 1:
            return torch.linalg.eigvalsh(point.dense())
        return point.spectrum.expanded()  # type: ignore[attr-defined]  # of two and more matrices it is listed

    @cached_property
    def eigenvalues_at_start(self) -> Tensor:
        """All eigenvalues of the Hessian where training starts, ascending."""
        return torch.linalg.eigvalsh(linear_hessian(self.start, self.moments))


_PIXELS = 4  # of a side of the windows that digits are averaged over: 7 × 7 pixels whiten in no time

_NEAR = 0.3  # how far the map of the task "near" is from the identity


@lru_cache(maxsize=32)
def task(name: TaskName, width: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (samples, width) each; the inputs have the identity as their second moment.

    Args:
        name: ``"digits"``: which of the first `width` digits an image shows, told from so many whitened components.
            ``"random"``: targets are a random linear map of the inputs. ``"rotation"``: the map only turns them.
            ``"near"``: the map is close to the identity, which is what a network of shortcuts starts as.
        width: Features of an input, and of a target.
    """
    if name == "digits":
        return _digits(width)
    inputs = width**0.5 * torch.eye(width, dtype=torch.float64)  # a few inputs whose second moment is the identity
    return inputs, inputs @ _map(name, width).T


def _digits(width: int) -> tuple[Tensor, Tensor]:
    digits = sample()
    chosen = digits.labels < width
    images = F.avg_pool2d(as_floats(digits.images[chosen], torch.float64), _PIXELS)
    inputs = fit_whitening(images, width)(images)
    return inputs, F.one_hot(digits.labels[chosen], width).to(inputs)


def _map(name: str, width: int) -> Tensor:
    generator, shape = Randomness(0).child("task", name, width).torch(), (width, width)
    if name == "random":
        return xavier_weights(shape, generator)
    if name == "rotation":
        return orthogonal_weights(shape, generator)
    if name == "near":
        return torch.eye(width, dtype=torch.float64) + _NEAR * xavier_weights(shape, generator)
    raise InvalidInputError(f"There is no task {name!r}; choose one of {', '.join(get_args(TaskName))}.")


DEPTHS = {0: (2, 4, 8, 20), 1: (1, 2, 4, 8, 20), 2: (2, 4, 8, 20), 3: (3, 6, 12, 21), 4: (4, 8, 12, 20)}
"""Weight matrices that make whole units, by the matrices that a shortcut jumps over."""

BEYOND_ROUNDING = 1e13
"""Above this the smaller eigenvalues of float64 are noise."""


@dataclass(frozen=True)
class Shape:
    """What matters of a spectrum: its extremes, how far they are apart, and how many directions go down."""

    largest: float
    smallest: float
    condition_number: float
    index: float


def shape_of(eigenvalues: Tensor) -> Shape:
    """Extremes, condition number (infinite beyond rounding, NaN of a zero matrix) and share of negative eigenvalues."""
    spectrum = listed_spectrum(eigenvalues)
    condition = spectrum.condition_number
    condition = math.inf if condition > BEYOND_ROUNDING else condition
    return Shape(spectrum.largest, spectrum.smallest, condition, spectrum.index_beyond_rounding)


def condition_against_depth(setting: Setting) -> Figure:
    """Condition numbers of networks of many depths, at zero and where training starts."""
    return Figure(
        name="condition_against_depth",
        title="Condition number against depth",
        caption="How unequal the curvatures are: gradient descent needs about so many steps. Shortcuts over two "
        "matrices start with the same condition number at every depth, over one it grows with depth, and over three "
        "or more the Hessian at zero vanishes: there is no dashed line. Lines end where numbers are beyond rounding.",
        x_label="weight matrices",
        y_label="condition number",
        marks=(
            *curves(replace(setting, branch_depth=0, depth=0)),
            Reference(float(setting.matrices), f"{setting.matrices} matrices", axis="x"),
        ),
        x_log=True,
        y_log=True,
    )


@lru_cache(maxsize=64)
def curves(setting: Setting) -> tuple[Mark, ...]:
    """The marks of all shortcut depths; depth and branch depth of `setting` do not matter."""
    marks: list[Mark] = []
    for branch_depth, depths in DEPTHS.items():
        if branch_depth == 0 and setting.initialisation == "near_zero":
            continue  # products of many small matrices: a plain network does not start there
        settings = [replace(setting, branch_depth=branch_depth, depth=depth) for depth in depths]
        name = f"over {branch_depth}" if branch_depth else "no shortcuts"
        shade = colour(branch_depth - 1)
        at_start = numbers([shape_of(each.eigenvalues_at_start).condition_number for each in settings])
        if branch_depth in (1, 2):
            at_zero = numbers([shape_of(each.eigenvalues_at_zero).condition_number for each in settings])
            marks.append(Line(numbers(depths), at_zero, f"{name}, at zero", dashed=True, colour=shade))
        marks.append(Line(numbers(depths), at_start, f"{name}, start", colour=shade))
    return tuple(marks)


STEPS = torch.linspace(0, 3, 61, dtype=torch.float64)


def loss_on_the_way_down(setting: Setting) -> Figure:
    """The loss against the length of the weights, at the depth of `setting`."""
    lines = [
        Line(numbers(STEPS), numbers(losses(replace(setting, branch_depth=branch_depth))), _name(branch_depth))
        for branch_depth in (1, 2, 3)
    ]
    return Figure(
        name="way_down",
        title="Loss on the steepest way down from zero",
        caption="All units walk together from zero along the direction in which the first derivative that does not "
        "vanish falls fastest. With one matrix the loss falls at once, with two like a parabola; with three it is a "
        "plateau on which gradient descent hardly moves.",
        x_label="length of all weights together",
        y_label="loss",
        marks=tuple(lines),
    )


def losses(setting: Setting) -> Tensor:
    """The loss at each step: every unit is I − sⁿ u vᵀ with the largest singular pair u, v of the slope at zero.

    The matrices z vᵀ, z zᵀ, …, −u zᵀ of a unit all have length s, so the network's weights have the length s √matrices.
    """
    point = hessian_at_zero(*task(setting.data, setting.width), setting.units, setting.branch_depth)
    u, _, v = torch.linalg.svd(point.slope)
    s = (STEPS / setting.matrices**0.5)[:, None, None] ** setting.branch_depth
    unit = torch.eye(setting.width, dtype=torch.float64) - s * torch.outer(u[:, 0], v[0])
    return torch.stack([setting.moments.loss(W) for W in torch.linalg.matrix_power(unit, setting.units)])


def _name(branch_depth: int) -> str:
    return f"over {branch_depth} matri{'x' if branch_depth == 1 else 'ces'}"
