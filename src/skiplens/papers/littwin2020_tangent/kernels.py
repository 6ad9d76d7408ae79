"""Figure 2 and theorems 1 and 2: the limiting kernels."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.kernels.architectures import DenseNetKernel, InfiniteWidthKernel, ResNetKernel
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet
from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers.littwin2020_tangent.measure import plane
from skiplens.papers.littwin2020_tangent.runs import DIAGONALS, SCALING_WIDTHS, WIDTHS
from skiplens.papers.statistics import Band, chosen, decide, decide_correction, over_seeds, slope, stacked
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import INK, Figure, Line, Points, numbers
from skiplens.readings.reading import Measurement

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


def printed_resnet_kernel(
    rho: Float[Tensor, " angles"], depth: int, branch_depth: int, branch_scale: float
) -> Float[Tensor, " angles"]:
    """Equation (23) with the covariances of equation (18), at ‖x‖² = d.

    Two indices are wrong: the branch's covariance in (18) has one ReLU too many, and the last sum in (23) uses the
    covariances after block L instead of those before it. The first does not show on the diagonal.
    """
    L, m, a = depth, branch_depth, branch_scale**branch_depth
    r, K = rho.double(), torch.zeros_like(rho.double())
    for layer in range(1, L + 1):
        scale = (1 + a) ** (layer - 1)
        after = (r + a * _composed(r, m)) / (1 + a)
        first_block = layer == 1
        inner = a * _branch_sum(r if first_block else after, m) * (scale if first_block else scale * (1 + a))
        K = K * (1 + a * _slope(r, 1, m)) + inner
        r = after
    return K


def printed_densenet_kernel(rho: Float[Tensor, " angles"], depth: int) -> Float[Tensor, " angles"]:
    """Equation (26) with the covariances of equations (22) and (28), at ‖x‖² = d.

    The covariance Σ⁰ in (26) is that of the input, where that of its activations is meant.
    """
    L, rho = depth, rho.double()
    sigma, sigma_dot = [rho, _kappa1(rho)], [torch.ones_like(rho), _kappa0(rho)]
    for layer in range(1, L):
        average = torch.stack(sigma[1 : layer + 1]).mean(0)
        sigma.append(_kappa1(average))
        sigma_dot.append(_kappa0(average))
    above = {L: torch.ones_like(rho)}  # m^{l+1,l} by l
    rows = {h: sigma_dot[h] / L for h in range(1, L)}  # m^{l+1,h} of the layer above
    for layer in range(L - 1, 0, -1):
        above[layer] = rows[layer]
        rows = {h: sigma_dot[h] / layer * above[layer] + rows[h] for h in range(1, layer)}
    terms = [torch.stack(sigma[:layer]).mean(0) * above[layer] for layer in range(1, L + 1)]
    return torch.stack(terms).sum(0)


def _branch_sum(r: Tensor, m: int) -> Tensor:
    """Σ_h Σ^{·,h-1} Π_{h' ≥ h} Σ̇^{·,h'} at correlation r, over the variance."""
    return sum((_composed(r, h - 1) * _slope(r, h, m) for h in range(1, m + 1)), start=torch.zeros_like(r))


def _slope(r: Tensor, first: int, m: int) -> Tensor:
    """Π Σ̇^{·,h} for h from `first` to m - 1."""
    return torch.stack([torch.ones_like(r), *(_kappa0(_composed(r, h - 1)) for h in range(first, m))]).prod(0)


def _composed(r: Tensor, times: int) -> Tensor:
    for _ in range(times):
        r = _kappa1(r)
    return r


def _kappa0(r: Tensor) -> Tensor:
    return 1 - r.clamp(-1, 1).acos() / math.pi


def _kappa1(r: Tensor) -> Tensor:
    theta = r.clamp(-1, 1).acos()
    return (theta.sin() + (math.pi - theta) * theta.cos()) / math.pi


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

NAMES = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}

COLOURS = dict(zip(WIDTHS, ("#d62728", "#2ca02c"), strict=True))
"""The paper's: narrow networks red, wide ones green, theory black."""

MOST_CURVES = 50


def draw_fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Panels (a) and (b)."""
    return tuple(_bundle(readings, architecture, panel) for architecture, panel in (("resnet", "a"), ("densenet", "b")))


def draw_thm1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The printed kernel beside the right one, and the variance against the width."""
    return _printed_and_right(readings, "resnet"), _variance_against_width(readings, "resnet")


def draw_thm2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The printed kernel beside the right one, and the variance against the width."""
    return _printed_and_right(readings, "densenet"), _variance_against_width(readings, "densenet")


def _bundle(readings: Sequence[Measurement], architecture: str, panel: str) -> Figure:
    name = NAMES[architecture]
    curves = [_curves(readings, architecture, width) for width in WIDTHS]
    theta = _angles(readings)
    theory = Line(theta, numbers(limit(architecture, len(theta))), "infinite width", colour=INK)
    return Figure(
        name=f"bundle_{architecture}",
        title=f"Figure 2{panel}: sampled kernels of a {name}, {DEPTH} {_layers(architecture)}",
        caption=f"Each thin line is one random {name}: red {WIDTHS[0]} units wide, green {WIDTHS[1]}. The thick line "
        "is the limiting kernel (corrected): it runs through the middle of both bundles, and the wide one is narrower.",
        x_label="angle between the inputs θ (radians)",
        y_label="tangent kernel G(x, x′)",
        marks=(*curves, theory),
    )


def _curves(readings: Sequence[Measurement], architecture: str, width: int) -> Line:
    """The networks of the first replicate as one line with gaps, so that they have one name."""
    kernels = stacked(readings, "kernel", "bundle", architecture=architecture, width=width)[0][:MOST_CURVES]
    gap = torch.full((len(kernels), 1), math.nan, dtype=torch.float64)
    theta = torch.tensor(_angles(readings), dtype=torch.float64).expand(len(kernels), -1)
    x, y = (torch.cat([values, gap], dim=1).flatten() for values in (theta, kernels))
    return Line(numbers(x), numbers(y), f"width {width}", colour=COLOURS[width], faint=True)


def _printed_and_right(readings: Sequence[Measurement], architecture: str) -> Figure:
    theta = _angles(readings)
    means = stacked(readings, "kernel", "bundle", architecture=architecture, width=max(WIDTHS)).mean(1)
    found = estimate(means)
    theorem = "Theorem 1" if architecture == "resnet" else "Theorem 2"
    return Figure(
        name=f"kernel_{architecture}",
        title=f"{theorem}: mean kernel, printed and corrected recursion",
        caption=f"Points are means over random networks {max(WIDTHS)} units wide with their standard "
        "errors over seeds. They lie on the corrected recursion; the recursion as printed misses them.",
        x_label="angle between the inputs θ (radians)",
        y_label="tangent kernel",
        marks=(
            Line(theta, numbers(limit(architecture, len(theta))), "corrected", colour=INK),
            Line(theta, numbers(printed(architecture, len(theta))), "as printed", dashed=True),
            Points(theta, numbers(found.value), "mean of random networks", numbers(found.standard_error)),
        ),
    )


def _variance_against_width(readings: Sequence[Measurement], architecture: str) -> Figure:
    scale = {"branch_scale": 0.5} if architecture == "resnet" else {}
    drawn = [
        stacked(readings, "kernel", "diagonal", architecture=architecture, depth=DEPTH, width=width, **scale).var(1)
        for width in SCALING_WIDTHS
    ]
    found = estimate(torch.stack(drawn, dim=1))
    exact = [kernel_moments(_network(architecture, width)).variance for width in SCALING_WIDTHS]
    return Figure(
        name=f"variance_{architecture}",
        title=f"Kernel at equal inputs, {NAMES[architecture]}, {DEPTH} {_layers(architecture)}",
        caption="The kernel of a random network converges to the limit: its variance falls like one over the width. "
        "The line is exact.",
        x_label="width n",
        y_label="variance of G(x, x)",
        marks=(
            Line(numbers(SCALING_WIDTHS), numbers([float(value) for value in exact]), "exact"),
            Points(numbers(SCALING_WIDTHS), numbers(found.value), "random networks", numbers(found.standard_error)),
        ),
        x_log=True,
        y_log=True,
    )


def _network(architecture: str, width: int) -> Network:
    return ResNet(DEPTH, width, 2, 0.5) if architecture == "resnet" else DenseNet(DEPTH, width)


def _layers(architecture: str) -> str:
    return "blocks" if architecture == "resnet" else "layers"


def _angles(readings: Sequence[Measurement]) -> tuple[float, ...]:
    count = chosen(readings, "bundle")[0].setting("angles")
    return numbers(torch.linspace(0, math.pi, count, dtype=torch.float64))
