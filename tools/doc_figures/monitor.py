"""Draw the pictures of `docs/monitor.md`: `python tools/doc_figures/monitor.py [FOLDER]`.

Takes a few minutes. Everything drawn at random has a seed, and the files hold no date.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from skiplens import data, zoo
from skiplens.plots.figure import Figure
from skiplens.report.during_training.monitor import Monitor
from skiplens.report.during_training.record import MonitorReading
from skiplens.report.lenses import figures_of
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe

LEFT_OUT = {"cost_of_looking", "weight_norm_while_training"}
"""The cost depends on the machine; the norm is told in words."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed: the pictures of the page, or (in tests) a few numbers for each."""

    digits: int = 1000
    steps: int = 120
    every: int = 10


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures; the name of each is the name of its file."""
    for figure in figures_of(followed(sizes)):
        if figure.name not in LEFT_OUT:
            yield figure


def followed(sizes: Sizes) -> MonitorReading:
    """The default network of the reports while it learns the embedded digits; every look is taken."""
    model, digits = zoo.build("digits_resnet"), data.load("sample").first(sizes.digits)
    recipe = Recipe(learning_rate=0.05, momentum=0.9, batch_size=50, steps=sizes.steps)
    with Monitor(model, digits, every=sizes.every, share=1e9) as monitor:
        train(model, digits, recipe, callbacks=[lambda moment: monitor.step(moment.loss_tensor, moment.step)])
    return monitor.reading


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "monitor_", __doc__)
