"""Pictures of `docs/convergence.md`: `python tools/doc_figures/convergence.py [--png] [FOLDER]`; about a minute.

Everything drawn at random has a seed, and the files hold no date: the same code writes the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skiplens import data
from skiplens.papers.macdonald2023_regularity.counterexample import (
    FREE_START,
    TRAPPED_START,
    run_counterexample,
    run_printed_bound,
)
from skiplens.papers.macdonald2023_regularity.guaranteed import (
    GuaranteedNetwork,
    GuaranteedRun,
    TrainingPlan,
    train_with_guarantee,
)
from skiplens.plots.figure import Figure, Line, Reference, numbers


@dataclass(frozen=True)
class Sizes:
    """How long the runs are: those of the page, or (in tests) a few steps."""

    guaranteed: int = 3_000
    trapped: int = 10_000
    printed: int = 1_000_000


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures of the page; the name of each is the name of its file."""
    yield trapped(sizes.trapped)
    yield printed_bound(sizes.printed)
    yield guaranteed(sizes.guaranteed)


def steps_to_draw(steps: int) -> Tensor:
    """About 300 steps, evenly spaced on a logarithmic axis; step 0 is left out, as that axis has none."""
    return torch.logspace(0, torch.tensor(float(steps)).log10().item(), 300).round().long().clamp(max=steps).unique()


def trapped(steps: int) -> Figure:
    """Two starts of the counterexample: one arrives, one does not."""
    at = steps_to_draw(steps)
    stuck = run_counterexample("square", TRAPPED_START, steps)
    arrived = run_counterexample("square", FREE_START, steps)
    return Figure(
        name="trapped",
        title="Every hypothesis of theorem 5.1 holds, and one start does not arrive",
        caption="Gradient descent with a certified step on the same network from two starts. The loss falls at every "
        "step of both; the first can never fall below the dotted level, although the second goes to zero.",
        x_label="steps of gradient descent",
        y_label="squared loss",
        marks=(
            Line(numbers(at), numbers(stuck.losses[at]), "start (1, 0.2, 1)"),
            Line(numbers(at), numbers(arrived.losses[at]), "start (1, 3, −1)"),
            Reference(stuck.trap, "proved: the first start stays above"),
        ),
        x_log=True,
        y_log=True,
    )


def printed_bound(steps: int) -> Figure:
    """The loss of one normalised layer beside the bound of the printed proof, which it crosses."""
    at, run = steps_to_draw(steps), run_printed_bound(steps)
    return Figure(
        name="printed_bound",
        title="Where the printed proof breaks",
        caption="One normalised layer. The printed inequality puts the smallest singular value where its square "
        "belongs, and would force the loss below a level that no parameters reach.",
        x_label="steps of gradient descent",
        y_label="logistic loss",
        marks=(
            Line(numbers(at), numbers(run.losses[at]), "loss"),
            Line(numbers(at), numbers(run.valid[at]), "corrected bound", dashed=True),
            Line(numbers(at), numbers(run.printed[at]), "printed bound", dashed=True),
            Reference(run.floor, "infimum over all parameters"),
        ),
        x_log=True,
    )


def small_digits(count: int = 12) -> tuple[Tensor, Tensor]:
    """Embedded digits averaged to 7 × 7 pixels, of spectral norm 2, and their classes as unit vectors."""
    digits = data.sample()
    pixels = F.avg_pool2d(digits.pixels()[:count].double(), 4).flatten(1)
    return 2 * pixels / torch.linalg.matrix_norm(pixels, 2), F.one_hot(digits.labels[:count], 10).double()


def guaranteed_run(scale: float, steps: int) -> GuaranteedRun:
    """A certified run of the repaired network on the digits from normal weights of this size."""
    network = GuaranteedNetwork((49, 10, 10), hidden=8, margin=0.8)
    start = network.random_start(torch.Generator().manual_seed(0), scale)
    run = train_with_guarantee(network, small_digits(), start, TrainingPlan(steps))
    assert run.holds, "a guarantee was broken"
    return run


def guaranteed(steps: int) -> Figure:
    """Three starts of the repaired network, each beside what was proved before its first step."""
    at, later, marks = steps_to_draw(steps), steps_to_draw(20 * steps), []
    for scale, colour in {0.1: "#0072b2", 1.0: "#d55e00", 10.0: "#009e73"}.items():
        run = guaranteed_run(scale, steps)
        marks.append(Line(numbers(at), numbers(run.losses[at]), f"weights of size {scale:g}", colour=colour))
        proved = [run.guarantee.bound(step) for step in later.tolist()]
        marks.append(Line(numbers(later), numbers(proved), "", dashed=True, colour=colour))
    return Figure(
        name="guaranteed",
        title="The repaired network: loss (solid) and certificate (dashed)",
        caption="Gradient descent on 12 digits. The dashed curves were computed before the first step, and go on "
        "where the runs end. They hold for the worst case, so they lie far above what happens; but they do go to zero.",
        x_label="steps of gradient descent",
        y_label="squared loss",
        marks=tuple(marks),
        x_log=True,
        y_log=True,
    )


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "convergence_", __doc__)
