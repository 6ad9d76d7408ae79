"""Figure 2 and theorems 1 and 2: the limiting kernels."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.kernels import DenseNetKernel, InfiniteWidthKernel, ResNetKernel
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.littwin2020_tangent.measure import plane
from skiplens.studies.littwin2020_tangent.printed import printed_densenet_kernel, printed_resnet_kernel
from skiplens.studies.littwin2020_tangent.settings import DIAGONALS, SCALING_WIDTHS, WIDTHS
from skiplens.studies.selection import stacked
from skiplens.studies.statistics import Band, decide, decide_correction, over_seeds, slope

DEPTH, BRANCH_DEPTH, BRANCH_SCALE = DIAGONALS[0]
TOLERANCE = 0.05
"""Of a mean, relative to the kernel at equal inputs; the O(1/n) bias of finite width is less than a tenth of it."""


def limit(architecture: str, angles: int) -> Float[Tensor, " angles"]:
    """The right limiting kernel at the angles of figure 2."""
    kernel: InfiniteWidthKernel = (
        ResNetKernel(DEPTH, BRANCH_DEPTH, BRANCH_SCALE) if architecture == "resnet" else DenseNetKernel(DEPTH)
    )
    inputs = plane(angles)
    return kernel.ntk(inputs[:1], inputs)[0]


def printed(architecture: str, angles: int) -> Float[Tensor, " angles"]:
    """The kernel as theorem 1 or 2 prints it, at the same angles."""
    rho = torch.linspace(0, math.pi, angles, dtype=torch.float64).cos()
    if architecture == "resnet":
        return printed_resnet_kernel(rho, DEPTH, BRANCH_DEPTH, BRANCH_SCALE)
    return printed_densenet_kernel(rho, DEPTH)


def printed_dense_mean(depth: int) -> float:
    """Equation (29), Σ 1/(l+1)."""
    return math.fsum(1 / (layer + 1) for layer in range(1, depth + 1))


def judge_kernel(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """Means of wide networks against the printed and the right kernel."""
    means = stacked(readings, "kernel", "bundle", architecture=architecture, width=max(WIDTHS)).mean(1)
    right, wrong = limit(architecture, means.shape[1]), printed(architecture, means.shape[1])
    band = Band.around(0.0, TOLERANCE)
    return decide_correction(
        (over_seeds((means - wrong) / right[0]), band),
        (over_seeds((means - right) / right[0]), band),
        f"Largest deviation over the angles of the mean kernel at width {max(WIDTHS)}, over the kernel at equal "
        "inputs, from the corrected recursion; the recursion as printed is off by up to "
        f"{float(((wrong - right) / right[0]).abs().max()):.2f}.",
    )


def judge_spread(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """Standard deviation of narrow over that of wide networks."""
    narrow, wide = (
        stacked(readings, "kernel", "bundle", architecture=architecture, width=width).std(1) for width in WIDTHS
    )
    ratio = (narrow / wide).median(dim=1).values
    expected = math.sqrt(max(WIDTHS) / min(WIDTHS))
    sentence = f"Standard deviation at width {min(WIDTHS)} over that at {max(WIDTHS)}, median over the angles"
    return decide(over_seeds(ratio), Band(1.0, math.inf), f"{sentence}; a law 1/√n gives {expected:.2f}.")


def judge_resnet_diagonal(readings: Sequence[Measurement]) -> Judgement:
    """Equation (25) at three networks."""
    deviations = []
    for depth, m, scale in DIAGONALS:
        a = scale**m
        expected = m * depth * a * (1 + a) ** (depth - 1)
        network = {"architecture": "resnet", "depth": depth, "branch_depth": m, "branch_scale": scale, "width": 50}
        deviations.append(stacked(readings, "kernel", "diagonal", **network).mean(1) / expected - 1)
    sentence = "Largest relative deviation of the mean kernel at equal inputs from equation (25), three networks."
    return decide(over_seeds(torch.stack(deviations, dim=1)), Band.around(0.0, TOLERANCE), sentence)


def judge_densenet_diagonal(readings: Sequence[Measurement]) -> Judgement:
    """Equation (29) against the harmonic number."""
    found = over_seeds(
        stacked(readings, "kernel", "diagonal", architecture="densenet", width=SCALING_WIDTHS[-1]).mean(1)
    )
    right, wrong = math.fsum(1 / layer for layer in range(1, DEPTH + 1)), printed_dense_mean(DEPTH)
    return decide_correction(
        (found, Band.around(wrong, TOLERANCE * wrong)),
        (found, Band.around(right, TOLERANCE * right)),
        f"Mean kernel at equal inputs, {DEPTH} layers. The diagonal is Σ 1/l = {right:.4f}; printed is Σ 1/(l+1) = "
        f"{wrong:.4f}.",
    )


def judge_convergence(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """How the variance falls with the width."""
    variances = [
        stacked(
            readings, "kernel", "diagonal", architecture=architecture, depth=DEPTH, width=width, **_scale(architecture)
        )
        for width in SCALING_WIDTHS
    ]
    logs = torch.stack([variance.var(1).log() for variance in variances], dim=1)
    found = over_seeds(slope([math.log(width) for width in SCALING_WIDTHS], logs))
    sentence = "Slope of log variance over log width of the kernel at equal inputs; a kernel that converges has -1."
    return decide(found, Band(-math.inf, -0.5), sentence)


def _scale(architecture: str) -> dict[str, float]:
    return {"branch_scale": BRANCH_SCALE} if architecture == "resnet" else {}


_MATCH = "Sampled kernels scatter around the theoretical curve at every angle"
_SPREAD = "Wider networks give a lower variance than narrow ones"

FIG2 = (
    Claim(
        "resnet_kernel",
        f"{_MATCH} (ResNet).",
        "Figure 2a",
        "black line, as in Theorem 1",
        partial(judge_kernel, architecture="resnet"),
    ),
    Claim(
        "densenet_kernel",
        f"{_MATCH} (DenseNet).",
        "Figure 2b",
        "black line, as in Theorem 2",
        partial(judge_kernel, architecture="densenet"),
    ),
    Claim("resnet_spread", f"{_SPREAD} (ResNet).", "Figure 2a", "> 1", partial(judge_spread, architecture="resnet")),
    Claim(
        "densenet_spread", f"{_SPREAD} (DenseNet).", "Figure 2b", "> 1", partial(judge_spread, architecture="densenet")
    ),
)

THM1 = (
    Claim(
        "recursion",
        "The kernel converges to K^R of the printed recursion.",
        "Theorem 1, Eqs. 18 and 23",
        "K^R(x, x′)",
        partial(judge_kernel, architecture="resnet"),
    ),
    Claim(
        "diagonal",
        "The diagonal is m L α^m (1 + α^m)^(L-1).",
        "Eq. 25",
        "m L α^m (1 + α^m)^(L-1)",
        judge_resnet_diagonal,
    ),
    Claim(
        "convergence",
        "The kernel of a random network converges as the width grows.",
        "Theorem 1",
        "variance → 0",
        partial(judge_convergence, architecture="resnet"),
    ),
)

THM2 = (
    Claim(
        "recursion",
        "The kernel converges to K^D of the printed recursion.",
        "Theorem 2, Eqs. 26 to 28",
        "K^D(x, x′)",
        partial(judge_kernel, architecture="densenet"),
    ),
    Claim("diagonal", "The diagonal is Σ 1/(l+1).", "Eq. 29", "1.45 for L = 5", judge_densenet_diagonal),
    Claim(
        "convergence",
        "The kernel of a random network converges as the width grows.",
        "Theorem 2",
        "variance → 0",
        partial(judge_convergence, architecture="densenet"),
    ),
)
