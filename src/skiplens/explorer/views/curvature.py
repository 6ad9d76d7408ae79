"""The curvature view: exact Hessians of linear networks with shortcuts, at zero and where training starts."""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import InvalidInputError, Progress, Randomness, in_words, span
from skiplens.curvature import LandscapeReading, loss_landscape
from skiplens.data import fit_to, fit_whitening, load
from skiplens.data.images import as_floats, sample
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.written import controls_of, notes_of, snippet, worded
from skiplens.graph.batch import take
from skiplens.linalg.second_moments import SecondMoments, second_moments
from skiplens.papers.li2016_shortcuts import hessian
from skiplens.plots.figure import Contour, Figure, Line, Mark, Reference, colour, numbers
from skiplens.training import Recipe, train
from skiplens.zoo.li2016 import LAWS, Start
from skiplens.zoo.weight_laws import orthogonal_weights, xavier_weights


@dataclass(frozen=True)
class CurvatureView(View):
    """Eigenvalues at zero and where training starts, condition number against depth, loss on the way down."""

    name = "curvature"
    title = "Curvature"
    lead = "How does the loss bend where training starts, and why are shortcuts over two matrices special?"
    fixed_controls = controls_of("curvature")

    def measurement(self, values: Values) -> Values | None:
        """What decides two landscapes; all else is exact and quick."""
        names = ("depth", "trained", "seed")
        return {name: values[name] for name in names} if values["look_at"] == LANDSCAPES else None

    def measure(self, values: Values, progress: Progress) -> "Planes":
        """The plane around a network with shortcuts over two matrices, and around one of as many without."""
        digits = take(fit_to(load("sample"), (10,)), _DIGITS)
        units, seed = max(1, values["depth"] // 2), values["seed"]

        def plane(model: nn.Module) -> LandscapeReading:
            if values["trained"]:
                recipe = Recipe(
                    optimiser="adam", learning_rate=_RATE, batch_size=64, steps=values["trained"], seed=seed
                )
                train(model, digits, recipe, progress=progress)
            few = digits.first(_LOOKED_AT)
            return loss_landscape(model, few, directions="random", points=_POINTS, seed=seed, progress=progress)

        return (
            plane(zoo.build("shortcut_network", seed, units=units, initialisation="xavier")),
            plane(zoo.build("plain_network", seed, depth=2 * units, activation="relu")),
        )

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """What is exact at once, or two landscapes when they are measured."""
        if values["look_at"] == LANDSCAPES:
            return _landscapes(values, measured)
        setting = setting_of(values)
        zero, start = map(hessian.listed_spectrum, (setting.eigenvalues_at_zero, setting.eigenvalues_at_start))
        slope = float(hessian.linear.linear_gradient(setting.start, setting.moments).norm())
        counted = f"{setting.matrices} in {setting.units} unit{'s' if setting.units > 1 else ''}"
        return Drawing(
            figures=(_eigenvalues(setting), _condition_against_depth(setting), _loss_on_the_way_down(setting)),
            says=f"{_about_zero(setting, zero)} Where training starts the curvatures reach "
            f"from {span(start.smallest, start.largest, 2)}, the condition number is "
            f"{condition(start)} and the gradient is {in_words(slope, 2)} long.",
            facts=(
                ("weight matrices", counted if setting.branch_depth else f"{setting.matrices}, no shortcuts"),
                ("condition number at zero", condition(zero)),
                ("condition number at the start", condition(start)),
                ("directions down at zero", f"{100 * zero.index_beyond_rounding:.0f} %"),
                ("directions down at the start", f"{100 * start.index_beyond_rounding:.0f} %"),
                ("loss at the start", in_words(float(hessian.linear.linear_loss(setting.start, setting.moments)))),
            ),
            rows=tuple(
                {
                    "point": name,
                    "largest eigenvalue": spectrum.largest,
                    "smallest eigenvalue": spectrum.smallest,
                    "condition number": condition(spectrum),
                    "share of negative eigenvalues": spectrum.index_beyond_rounding,
                }
                for name, spectrum in (("zero weights", zero), ("start", start))
            ),
            code=_code(setting),
            notes=notes_of("curvature"),
        )


LANDSCAPES = "landscapes"
Planes = tuple[LandscapeReading, LandscapeReading]
_DIGITS, _LOOKED_AT, _POINTS, _RATE = 512, 128, 15, 0.003


def _landscapes(values: Values, planes: Planes | None) -> Drawing:
    """Both planes beside each other as logarithms of the loss."""
    units = max(1, values["depth"] // 2)
    told = {"digits": _DIGITS, "looked_at": _LOOKED_AT, "points": _POINTS, "rate": _RATE}
    code = snippet("landscapes", own=values, units=units, matrices=2 * units, **told)
    if planes is None:
        return Drawing(says=f"Training two networks of {2 * units} matrices …", code=code)
    names = (f"With {units} shortcuts", "Without shortcuts")
    figures, facts = [], []
    for place, name, plane in zip(("with_shortcuts", "without_shortcuts"), names, planes, strict=True):
        x, finite = numbers(plane.coordinates), plane.losses[plane.losses.isfinite()]
        heights = Contour(x, x, tuple(numbers(row) for row in plane.losses.log10().T), "log10 of the loss")
        missing = f" At {plane.missing} points the loss is not finite: left open." * bool(plane.missing)
        drawn = worded("landscape", heights, network=name, loss=in_words(plane.loss), missing=missing)
        figures.append(replace(drawn, name=place))
        facts.append((f"losses seen, {name.lower()}", span(plane.lowest, float(finite.max()))))
    return Drawing(
        figures=tuple(figures),
        beside=2,
        says=f"After {values['trained']} steps the network of {2 * units} matrices with shortcuts has a loss "
        f"of {in_words(planes[0].loss)}, the one without {in_words(planes[1].loss)}. Zoom into one: both move.",
        facts=tuple(facts),
        code=code,
        notes=notes_of("landscapes"),
    )


TaskName = Literal["digits", "random", "rotation", "near"]


@dataclass(frozen=True)
class Setting:
    """A linear network with its start and its task; the fields are the controls of the view."""

    branch_depth: int = 2
    depth: int = 16
    initialisation: Start = "near_zero"
    data: TaskName = "digits"
    width: int = 4
    seed: int = 0

    @property
    def units(self) -> int:
        """Residual units that fit into the depth, at least one; single matrices without shortcuts."""
        return max(1, self.depth // max(1, self.branch_depth))

    @property
    def matrices(self) -> int:
        """Weight matrices that are there: as many as make whole units."""
        return self.units * max(1, self.branch_depth)

    @cached_property
    def moments(self) -> SecondMoments:
        """All that a linear network sees of the task."""
        return second_moments(*task(self.data, self.width))

    @cached_property
    def start(self) -> tuple[hessian.LinearUnit, ...]:
        """The network where training starts."""
        weights = initial_weights(self.initialisation, self.matrices, self.width, self.seed)
        return hessian.shortcut_units(weights, self.branch_depth) if self.branch_depth else hessian.plain_units(weights)

    @cached_property
    def eigenvalues_at_zero(self) -> Tensor:
        """All eigenvalues of the Hessian where all weights are zero, ascending."""
        if self.branch_depth == 0:
            zeros = torch.zeros(self.matrices, self.width, self.width, dtype=torch.float64)
            return torch.linalg.eigvalsh(hessian.linear_hessian(hessian.plain_units(zeros), self.moments))
        point = hessian.hessian_at_zero(*task(self.data, self.width), self.units, self.branch_depth)
        if self.branch_depth == 1:
            return torch.linalg.eigvalsh(point.dense())
        return point.spectrum.expanded()  # type: ignore[attr-defined]  # of two and more matrices it is listed

    @cached_property
    def eigenvalues_at_start(self) -> Tensor:
        """All eigenvalues of the Hessian where training starts, ascending."""
        return torch.linalg.eigvalsh(hessian.linear_hessian(self.start, self.moments))


def setting_of(values: Values) -> Setting:
    """The network that the controls of the view stand at."""
    return Setting(**{field.name: values[field.name] for field in fields(Setting)})


def initial_weights(start: Start, matrices: int, width: int, seed: int) -> Tensor:
    """Square weight matrices drawn by the law of a start, (matrices, width, width)."""
    generator = Randomness(seed).torch()
    return torch.stack([LAWS[start]((width, width), generator) for _ in range(matrices)])


@lru_cache(maxsize=32)
def task(name: TaskName, width: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (samples, width) each; the inputs have the identity as their second moment.

    Of digits: which of the first `width` ones an image shows, by so many whitened components. Else targets are a linear
    map of the inputs: random, a rotation, or near the identity, which is what a network of shortcuts starts as.
    """
    if name == "digits":
        digits = sample()
        chosen = digits.labels < width
        images = F.avg_pool2d(as_floats(digits.images[chosen], torch.float64), 4)  # 7 × 7 pixels whiten in no time
        inputs = fit_whitening(images, width)(images)
        return inputs, F.one_hot(digits.labels[chosen], width).to(inputs)
    generator, shape = Randomness(0).child("task", name, width).torch(), (width, width)
    if name == "random":
        linear_map = xavier_weights(shape, generator)
    elif name == "rotation":
        linear_map = orthogonal_weights(shape, generator)
    elif name == "near":
        linear_map = torch.eye(width, dtype=torch.float64) + 0.3 * xavier_weights(shape, generator)
    else:
        raise InvalidInputError(f"There is no task {name!r}; choose one of {', '.join(get_args(TaskName))}.")
    inputs = width**0.5 * torch.eye(width, dtype=torch.float64)  # a few inputs whose second moment is the identity
    return inputs, inputs @ linear_map.T


_FLAT = 1e-12  # an eigenvalue below this is flat: curvatures of these tasks are of order one
_BEYOND_ROUNDING = 1e13  # a condition number above this has smaller eigenvalues that are noise in float64


def condition_number(spectrum: hessian.ListedSpectrum) -> float:
    """The condition number: infinite beyond rounding, NaN of a zero matrix."""
    return math.inf if spectrum.condition_number > _BEYOND_ROUNDING else spectrum.condition_number


def condition(spectrum: hessian.ListedSpectrum) -> str:
    """The condition number in words."""
    number = condition_number(spectrum)
    if math.isnan(number):
        return "none: the Hessian is zero"
    return in_words(number) if number < _BEYOND_ROUNDING else "above 10¹³"


def _about_zero(setting: Setting, zero: hessian.ListedSpectrum) -> str:
    n = setting.branch_depth
    if max(abs(zero.largest), abs(zero.smallest)) < _FLAT:
        many = f"n = {n}" if n else f"{setting.matrices} matrices without shortcuts"
        near = setting.initialisation == "near_zero"
        follows = "gradient descent starts on a plateau" if near else "who starts near zero starts on a plateau"
        return f"The Hessian at zero vanishes for {many}: {follows}."
    if n == 1:
        return (
            f"With a shortcut over each matrix the largest curvature at zero grows with depth, to "
            f"{in_words(zero.largest)} "
            f"here, and with it the condition number, to {condition(zero)}: the deeper, the smaller the steps."
        )
    if n == 2:
        return (
            f"With shortcuts over two matrices the condition number at zero is {condition(zero)} at every depth, and "
            "half of all directions go down: zero is a saddle that gradient descent leaves."
        )
    return f"The Hessian at zero has the condition number {condition(zero)}."


def _code(setting: Setting) -> str:
    """The eigenvalues where training starts, and with shortcuts also what is known at zero."""
    n = setting.branch_depth
    units = f"shortcut_units(weights, {n})" if n else "plain_units(weights)"
    start = snippet("hessian", own=setting, units=units, made_by=units.partition("(")[0])
    return start + snippet("hessian_at_zero", own=setting) if n else start


DEPTHS = {0: (2, 4, 8, 20), 1: (1, 2, 4, 8, 20), 2: (2, 4, 8, 20), 3: (3, 6, 12, 21), 4: (4, 8, 12, 20)}
"""Weight matrices that make whole units, by the matrices that a shortcut jumps over."""

STEPS = torch.linspace(0, 3, 61, dtype=torch.float64)


def _eigenvalues(setting: Setting) -> Figure:
    start, zero = setting.eigenvalues_at_start, setting.eigenvalues_at_zero
    share = numbers((torch.arange(len(start), dtype=torch.float64) + 0.5) / len(start))
    return worded(
        "eigenvalues",
        Line(share, numbers(start), "where training starts"),
        Line(share, numbers(zero), "at zero weights", dashed=True),
        Reference(0.0),
        weights=setting.matrices * setting.width**2,
    )


def _condition_against_depth(setting: Setting) -> Figure:
    return worded(
        "condition_against_depth",
        *_condition_curves(replace(setting, branch_depth=0, depth=0)),
        Reference(float(setting.matrices), f"{setting.matrices} matrices", axis="x"),
    )


@lru_cache(maxsize=64)
def _condition_curves(setting: Setting) -> tuple[Mark, ...]:
    """The marks of all shortcut depths; depth and branch depth of `setting` do not matter."""
    marks: list[Mark] = []
    for branch_depth, depths in DEPTHS.items():
        if branch_depth == 0 and setting.initialisation == "near_zero":
            continue  # products of many small matrices: a plain network does not start there
        settings = [replace(setting, branch_depth=branch_depth, depth=depth) for depth in depths]
        name = f"over {branch_depth}" if branch_depth else "no shortcuts"
        shade = colour(branch_depth - 1)
        at_start = numbers([condition_number(hessian.listed_spectrum(each.eigenvalues_at_start)) for each in settings])
        if branch_depth in (1, 2):
            flat = (hessian.listed_spectrum(each.eigenvalues_at_zero) for each in settings)
            at_zero = numbers([condition_number(spectrum) for spectrum in flat])
            marks.append(Line(numbers(depths), at_zero, f"{name}, at zero", dashed=True, colour=shade))
        marks.append(Line(numbers(depths), at_start, f"{name}, start", colour=shade))
    return tuple(marks)


def _loss_on_the_way_down(setting: Setting) -> Figure:
    names = {1: "over 1 matrix", 2: "over 2 matrices", 3: "over 3 matrices"}
    return worded(
        "way_down",
        *[
            Line(numbers(STEPS), numbers(losses(replace(setting, branch_depth=branch_depth))), name)
            for branch_depth, name in names.items()
        ],
    )


def losses(setting: Setting) -> Tensor:
    """The loss at each step: every unit is I − sⁿ u vᵀ with the largest singular pair u, v of the slope at zero.

    The matrices z vᵀ, z zᵀ, …, −u zᵀ of a unit all have length s, so the network's weights have the length s √matrices.
    """
    point = hessian.hessian_at_zero(*task(setting.data, setting.width), setting.units, setting.branch_depth)
    u, _, v = torch.linalg.svd(point.slope)
    s = (STEPS / setting.matrices**0.5)[:, None, None] ** setting.branch_depth
    unit = torch.eye(setting.width, dtype=torch.float64) - s * torch.outer(u[:, 0], v[0])
    return torch.stack([setting.moments.loss(W) for W in torch.linalg.matrix_power(unit, setting.units)])
