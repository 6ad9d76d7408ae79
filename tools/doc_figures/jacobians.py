"""Pictures of `docs/lenses/jacobians.md`: `python tools/doc_figures/jacobians.py [--png] [FOLDER]`; about a minute.

Everything drawn at random has a seed, and the files hold no date: the same code writes the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import skiplens as sl
from skiplens import data, zoo
from skiplens.jacobians.averages import SpectrumAverage
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.plots.figure import Figure, Line, Reference, numbers
from skiplens.report.lenses import figures_of

NETWORKS = {
    "mnist_residual": "projection",
    "mnist_residual_avgpool": "projection + average pool",
    "mnist_residual_isopool": "projection + isometric pool",
}


@dataclass(frozen=True)
class Sizes:
    """How much is drawn: the pictures of the page, or (in tests) a few numbers for each."""

    images: int = 4
    trained_images: int = 32
    iterations: int = 10


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures of the page; the name of each is the name of its file."""
    yield from report_figures()
    yield first_block(sizes)
    yield second_block(sizes)
    yield while_training(sizes)


def report_figures() -> Iterator[Figure]:
    """What `skiplens inspect --lens jacobians` shows of the default network: its blocks, and end to end."""
    report = sl.inspect(zoo.build("digits_resnet"), data.load("sample"), lenses=["jacobians"])
    reading = report.reading(JacobianSpectrum)
    assert reading is not None
    for figure in figures_of(reading):
        if figure.name != "spectrum_of_one_block":
            yield replace(figure, name=f"digits_resnet_{figure.name}")


def first_block(sizes: Sizes) -> Figure:
    """All singular values of a block with an identity shortcut, with and without it."""
    reading = spectrum("mnist_residual", "block1", sizes)
    (figure,) = (figure for figure in figures_of(reading) if figure.name == "spectrum_of_one_block")
    return replace(figure, name="first_block", title="An identity shortcut keeps every direction alive")


def second_block(sizes: Sizes) -> Figure:
    """All singular values of a block with a projection shortcut, and with pools added to it."""
    name = "block2.residual"
    readings = {label: spectrum(network, name, sizes) for network, label in NETWORKS.items()}
    bare = readings["projection"].without_shortcut[name]
    curves = [sorted_curve(reading.singular_values[name], label) for label, reading in readings.items()]
    return Figure(
        name="second_block",
        title="What is added to a projection shortcut",
        caption="All singular values of the second block of the MNIST networks, sorted; same weights, same images.",
        x_label="share of the directions (%)",
        y_label="singular value",
        marks=(sorted_curve(bare, "no shortcut", dashed=True), *curves, Reference(1.0)),
        y_log=True,
    )


def while_training(sizes: Sizes) -> Figure:
    """Singular values from the first block to the logits, averaged over the first steps of gradient descent."""
    networks = {"mnist_chain": "no shortcuts", **NETWORKS}
    return Figure(
        name="while_training",
        title=f"First block to logits, mean of {sizes.iterations} training steps",
        caption="Sorted singular values of the joint Jacobian of the batch, averaged over the first training steps.",
        x_label="share of the directions (%)",
        y_label="singular value",
        marks=tuple(
            sorted_curve(trained_average(network, sizes).singular_values["network"], label)
            for network, label in networks.items()
        ),
    )


def trained_average(network: str, sizes: Sizes) -> JacobianSpectrum:
    """The spectrum from the stem's output to the logits, averaged over full-batch gradient descent at rate 0.1."""
    model, batch = zoo.build(network), data.load("sample").first(sizes.trained_images)
    optimiser, average = torch.optim.SGD(model.parameters(), lr=0.1), SpectrumAverage()
    tail = nn.Sequential(model.block1, model.block2, model.head)
    for _ in range(sizes.iterations):
        average.add(
            sl.jacobian_spectrum(tail, model.stem(batch.inputs).detach(), blocks=[], coupling="batch", method="exact")
        )
        optimiser.zero_grad()
        cross_entropy(model(batch.inputs), batch.targets).backward()
        optimiser.step()
    return average.reading()


def spectrum(network: str, block: str, sizes: Sizes) -> JacobianSpectrum:
    """All singular values of a block, each image by itself."""
    images = data.load("sample").first(sizes.images).inputs
    return sl.jacobian_spectrum(
        zoo.build(network), images, blocks=[block], coupling="sample", method="exact", network=False
    )


def sorted_curve(values: torch.Tensor, name: str, dashed: bool = False) -> Line:
    """The values in ascending order against the share of those below; at most 400 points."""
    ascending = values.flip(0)[:: max(1, len(values) // 400)].clamp_min(1e-6)
    return Line(numbers(torch.linspace(0, 100, len(ascending))), numbers(ascending), name, dashed)


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "jacobians_", __doc__)
