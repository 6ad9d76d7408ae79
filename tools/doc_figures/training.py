"""Draw the pictures of `docs/training.md` and `docs/landscape.md`: `python tools/doc_figures/training.py [FOLDER]`.

Takes a few minutes. Everything drawn at random has a seed, and the files hold no date.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

import skiplens as sl
from skiplens import data, zoo
from skiplens.data.preprocessing import fit_whitening
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, plain_units, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.plots.figure import Figure
from skiplens.report.during_training.along import (
    AlongTraining,
    QuantityAlong,
    at_losses,
    quantities_along,
    readings_along,
)
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.report.lenses import figures_of
from skiplens.training.history import TrainingHistory
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from skiplens.zoo.li2016 import matrices

DEPTH = 8
"""Matrices of the linear networks whose spectra are followed."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed: the pictures of the pages, or (in tests) a few numbers for each."""

    digits: int = 1000
    epochs: int = 6
    runs: int = 3
    losses: tuple[float, ...] = (4.5, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.4)
    steps: int = 3000
    points: int = 21
    slice_samples: int = 100
    deep_steps: int = 400


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures; the name of each is the name of its file."""
    model, history = trained_digits(sizes)
    yield replace(figures_of(history)[0], name="training_loss")
    yield from spectra(sizes)
    yield from slices_of_digits(model, sizes)
    yield from with_and_without_shortcuts(sizes)


def trained_digits(sizes: Sizes) -> tuple[nn.Module, TrainingHistory]:
    """The default network of the reports, trained on the embedded digits."""
    model = zoo.build("digits_resnet")
    recipe = Recipe(learning_rate=0.05, momentum=0.9, batch_size=50, epochs=sizes.epochs, schedule="cosine")
    return model, train(model, data.load("sample").first(sizes.digits), recipe)


def whitened_digits(count: int) -> tuple[Tensor, Tensor]:
    """Ten whitened components of embedded digits, and their classes as unit vectors."""
    digits = data.sample()
    images, labels = digits.images[:count], digits.labels[:count]
    return fit_whitening(images, 10)(images).double(), nn.functional.one_hot(labels.long(), 10).double()


def spectra(sizes: Sizes) -> Iterator[Figure]:
    """Condition number and index along training, with and without shortcuts: figures 5 and 6 in small."""
    samples = whitened_digits(2000)
    moments = second_moments(*samples)

    def spectrum(model: nn.Module) -> dict[str, float]:
        weights = torch.stack([weight.detach() for weight in matrices(model)])
        has_shortcuts = not isinstance(model[0], nn.Linear)
        units = shortcut_units(weights, 2) if has_shortcuts else plain_units(weights)
        found = spectrum_of(linear_hessian(units, moments))
        return {"condition number": found.condition_number, "index": found.index}

    def runs(name: str, rate: float, **options: object) -> list[AlongTraining]:
        recipe = Recipe(loss="half_squared_error", learning_rate=rate, steps=sizes.steps)
        networks = [zoo.build(name, seed=seed, **options).double() for seed in range(sizes.runs)]
        plan = MeasureAlong(spectrum, at_losses=sizes.losses, stop_when_done=True)
        return [readings_along(network, samples, recipe, plan) for network in networks]

    shortcuts = runs("shortcut_linear", 0.1, units=DEPTH // 2)
    plain = runs("plain_network", 0.02, depth=DEPTH, initialisation="orthogonal")
    for quantity in ("condition number", "index"):
        compared: dict[str, QuantityAlong] = {
            "shortcuts over two matrices": at_losses(shortcuts, quantity),
            "no shortcuts, orthogonal start": at_losses(plain, quantity),
        }
        yield replace(quantities_along(compared), name=f"training_{quantity.replace(' ', '_')}")


def slices_of_digits(model: nn.Module, sizes: Sizes) -> Iterator[Figure]:
    """The trained network along its sharpest directions."""
    samples = data.load("sample").first(sizes.slice_samples)
    model = copy.deepcopy(model).eval()
    line = sl.loss_landscape(
        model, samples, loss="cross_entropy", dimensions=1, points=2 * sizes.points - 1, radius=0.1
    )
    yield replace(figures_of(line)[0], name="landscape_line")
    plane = sl.loss_landscape(model, samples, loss="cross_entropy", points=sizes.points, radius=0.25)
    contours, surface = figures_of(plane)
    yield replace(contours, name="landscape_eigenvectors")
    yield replace(surface, name="landscape_surface")


def with_and_without_shortcuts(sizes: Sizes) -> Iterator[Figure]:
    """Two networks of forty matrices, trained alike, on planes of random filter-normalised directions."""
    samples = whitened_digits(500)
    networks = {
        "shortcuts": zoo.build("shortcut_network", units=20).double(),
        "plain": zoo.build("plain_network", depth=40, activation="relu", initialisation="orthogonal").double(),
    }
    for name, network in networks.items():
        train(network, samples, Recipe(loss="half_squared_error", learning_rate=0.1, steps=sizes.deep_steps))
        plane = sl.loss_landscape(network, samples, loss="mse", directions="random", points=sizes.points, radius=1.0)
        yield replace(figures_of(plane)[0], name=f"landscape_{name}", title=f"Forty matrices: {name}")


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "", __doc__)
