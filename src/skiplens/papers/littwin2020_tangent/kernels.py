"""Figure 2 and theorems 1 and 2: kernels of random networks scatter around limits whose recursions are misprinted."""

import math
from functools import partial

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.kernels.architectures import Architecture, DenseNetKernel, ResNetKernel
from skiplens.kernels.finite_width import DenseNet, ResNet, Simulation, kernel_moments, sample_kernels
from skiplens.papers import statistics
from skiplens.papers.littwin2020_tangent import common, errata
from skiplens.papers.littwin2020_tangent.common import DRAWN, NAMES, SCALING_WIDTHS, SIZES, diagonal_runs, tables
from skiplens.papers.littwin2020_tangent.errata import printed_densenet_kernel, printed_resnet_kernel
from skiplens.papers.statistics import Band, Readings, chosen, decide, figure, mean_points, over_seeds, stacked
from skiplens.papers.study import Claim, Item, Judgement, Preset, claims
from skiplens.plots.figure import INK, Figure, Line, numbers
from skiplens.sweeps.run import Run

WIDTHS = (50, 500)  # of figure 2
DIAGONALS = ((5, 2, 0.5), (3, 3, 0.7), (10, 2, 0.3))  # depth, branch depth and branch scale, to check equation (25)
DEPTH, BRANCH_DEPTH, BRANCH_SCALE = DIAGONALS[0]
TOLERANCE = 0.05  # of a mean, over the kernel at equal inputs; the O(1/n) bias of finite width is less than a tenth
COLOURS = dict(zip(WIDTHS, ("#d62728", "#2ca02c"), strict=True))  # the paper's: narrow networks red, wide ones green
MOST_CURVES = 50


class Bundle(common.Networks):
    """Tangent kernels of random networks against the angle between two inputs (figure 2)."""

    branch_scale: float = option(0.5, "scale of each matrix of a branch")
    networks: int = option(100, "networks drawn")
    angles: int = option(20, "angles from 0 to π")
    explicit_weights: bool = option(False, "draw the weight matrices")

    def numbers_drawn(self) -> int:
        """Whole matrices where the weights are drawn."""
        return super().numbers_drawn() * (self.width if self.explicit_weights else 1)


def bundle(settings: Bundle) -> dict[str, Tensor]:
    """Kernels between the first axis and a vector at each angle, (networks, angles)."""
    network, inputs, generator = settings.network(), plane(settings.angles), settings.stream()
    if settings.explicit_weights:
        drawn = Simulation(network, memory=common.MEMORY).kernels(inputs, settings.networks, generator)
    else:
        drawn = sample_kernels(network, inputs, settings.networks, generator, memory=common.MEMORY)
    return {"kernel": drawn.samples[:, 0]}


def plane(angles: int) -> Float[Tensor, "angles features"]:
    """Vectors of the plane with ‖x‖² = d = 2 at equally spaced angles from 0 to π."""
    theta = torch.linspace(0, math.pi, angles, dtype=torch.float64)
    return torch.stack([theta.cos(), theta.sin()], dim=1) * 2**0.5


def fig2_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual and dense networks of two widths."""
    return [*_bundles("resnet", preset, seed), *_bundles("densenet", preset, seed)]


def thm1_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual networks, and diagonals of three of them at one width and of one at several."""
    runs = _bundles("resnet", preset, seed)
    for depth, branch_depth, scale in DIAGONALS:
        runs += diagonal_runs(preset, seed, {}, depth=depth, branch_depth=branch_depth, branch_scale=scale)
    first = {"depth": DEPTH, "branch_depth": BRANCH_DEPTH, "branch_scale": BRANCH_SCALE}
    return [*runs, *diagonal_runs(preset, seed, {"width": SCALING_WIDTHS}, **first)]


def thm2_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles and diagonals of dense networks."""
    diagonals = diagonal_runs(preset, seed, {"width": SCALING_WIDTHS}, architecture="densenet")
    return [*_bundles("densenet", preset, seed), *diagonals]


def _bundles(architecture: Architecture, preset: Preset, seed: int) -> list[Run]:
    sizes = SIZES[preset]
    base = Bundle(architecture=architecture, networks=sizes.bundle, explicit_weights=sizes.explicit_weights)
    return common.repeated(bundle, base, preset, seed, width=WIDTHS)


def limit(architecture: str, angles: int) -> Float[Tensor, " angles"]:
    """The right limiting kernel at the angles of figure 2."""
    inputs = plane(angles)
    if architecture == "resnet":
        return ResNetKernel(DEPTH, BRANCH_DEPTH, BRANCH_SCALE).ntk(inputs[:1], inputs)[0]
    return DenseNetKernel(DEPTH).ntk(inputs[:1], inputs)[0]


def printed(architecture: str, angles: int) -> Float[Tensor, " angles"]:
    """The kernel as theorem 1 or 2 prints it, at the same angles."""
    rho = torch.linspace(0, math.pi, angles, dtype=torch.float64).cos()
    if architecture == "resnet":
        return printed_resnet_kernel(rho, DEPTH, BRANCH_DEPTH, BRANCH_SCALE)
    return printed_densenet_kernel(rho, DEPTH)


def judge_kernel(readings: Readings, architecture: str) -> Judgement:
    """Means of wide networks against the printed and the right kernel."""
    means = _kernels(readings, architecture, max(WIDTHS)).mean(1)
    right, wrong = limit(architecture, means.shape[1]), printed(architecture, means.shape[1])
    band = Band.around(0.0, TOLERANCE)
    return statistics.decide_correction(
        (over_seeds((means - wrong) / right[0]), band),
        (over_seeds((means - right) / right[0]), band),
        f"Largest deviation over the angles of the mean kernel at width {max(WIDTHS)}, over the kernel at equal "
        "inputs, from the corrected recursion; the recursion as printed is off by up to "
        f"{float(((wrong - right) / right[0]).abs().max()):.2f}.",
    )


def judge_spread(readings: Readings, architecture: str) -> Judgement:
    """Standard deviation of narrow over that of wide networks."""
    narrow, wide = (_kernels(readings, architecture, width).std(1) for width in WIDTHS)
    ratio = (narrow / wide).median(dim=1).values
    expected = math.sqrt(max(WIDTHS) / min(WIDTHS))
    sentence = f"Standard deviation at width {min(WIDTHS)} over that at {max(WIDTHS)}, median over the angles"
    return decide(over_seeds(ratio), Band(1.0, math.inf), f"{sentence}; a law 1/√n gives {expected:.2f}.")


def judge_resnet_diagonal(readings: Readings) -> Judgement:
    """Equation (25) at three networks."""
    deviations = []
    for depth, m, scale in DIAGONALS:
        a = scale**m
        expected = m * depth * a * (1 + a) ** (depth - 1)
        network = {"architecture": "resnet", "depth": depth, "branch_depth": m, "branch_scale": scale, "width": 50}
        deviations.append(stacked(readings, "kernel", "diagonal", **network).mean(1) / expected - 1)
    sentence = "Largest relative deviation of the mean kernel at equal inputs from equation (25), three networks."
    return decide(over_seeds(torch.stack(deviations, dim=1)), Band.around(0.0, TOLERANCE), sentence)


def judge_densenet_diagonal(readings: Readings) -> Judgement:
    """Equation (29) against the harmonic number."""
    drawn = stacked(readings, "kernel", "diagonal", architecture="densenet", width=SCALING_WIDTHS[-1])
    found = over_seeds(drawn.mean(1))
    right, wrong = math.fsum(1 / layer for layer in range(1, DEPTH + 1)), errata.densenet_mean_as_printed(DEPTH)
    return statistics.decide_correction(
        (found, Band.around(wrong, TOLERANCE * wrong)),
        (found, Band.around(right, TOLERANCE * right)),
        f"Mean kernel at equal inputs, {DEPTH} layers. The diagonal is Σ 1/l = {right:.4f}; printed is Σ 1/(l+1) = "
        f"{wrong:.4f}.",
    )


def judge_convergence(readings: Readings, architecture: str) -> Judgement:
    """How the variance falls with the width."""
    found = over_seeds(statistics.exponent(SCALING_WIDTHS, _variances(readings, architecture)))
    sentence = "Slope of log variance over log width of the kernel at equal inputs; a kernel that converges has -1."
    return decide(found, Band(-math.inf, -0.5), sentence)


def _kernels(readings: Readings, architecture: str, width: int) -> Float[Tensor, "replicates n angles"]:
    return stacked(readings, "kernel", "bundle", architecture=architecture, width=width)


def _variances(readings: Readings, architecture: str) -> Float[Tensor, "replicates widths"]:
    """Variance of the diagonal at each of the scaling widths."""
    scale = {"branch_scale": BRANCH_SCALE} if architecture == "resnet" else {}
    network = {"architecture": architecture, "depth": DEPTH, **scale}
    drawn = [stacked(readings, "kernel", "diagonal", width=width, **network) for width in SCALING_WIDTHS]
    return torch.stack([kernels.var(1) for kernels in drawn], dim=1)


_PANELS = (("resnet", "a", "Theorem 1"), ("densenet", "b", "Theorem 2"))

_SCATTER = "Sampled kernels scatter around the theoretical curve at every angle"
_LOWER = "Wider networks give a lower variance than narrow ones"
_RECURSION = "The kernel converges to {} of the printed recursion."
_CONVERGENCE = "The kernel of a random network converges as the width grows."
_EQUATION_25 = "m L α^m (1 + α^m)^(L-1)"

_KERNELS = claims(
    judge_kernel,
    *(
        (f"{kind}_kernel", f"{_SCATTER} ({NAMES[kind]}).", f"Figure 2{panel}", f"deviation 0 from {theorem}", kind)
        for kind, panel, theorem in _PANELS
    ),
)
_SPREADS = claims(
    judge_spread, *((f"{k}_spread", f"{_LOWER} ({NAMES[k]}).", f"Figure 2{panel}", "> 1", k) for k, panel, _ in _PANELS)
)
_LIMIT1, _LIMIT2 = claims(
    judge_kernel,
    ("recursion", _RECURSION.format("K^R"), "Theorem 1, Eqs. 18 and 23", "deviation 0 from K^R(x, x′)", "resnet"),
    ("recursion", _RECURSION.format("K^D"), "Theorem 2, Eqs. 26 to 28", "deviation 0 from K^D(x, x′)", "densenet"),
)
_CONVERGES1, _CONVERGES2 = claims(
    judge_convergence, *(("convergence", _CONVERGENCE, theorem, "slope < 0", kind) for kind, _, theorem in _PANELS)
)
_DIAGONAL1 = Claim("diagonal", f"The diagonal is {_EQUATION_25}.", "Eq. 25", "deviation 0", judge_resnet_diagonal)
_DIAGONAL2 = Claim("diagonal", "The diagonal is Σ 1/(l+1).", "Eq. 29", "1.45 for L = 5", judge_densenet_diagonal)

FIG2 = (*_KERNELS, *_SPREADS)
THM1, THM2 = (_LIMIT1, _DIAGONAL1, _CONVERGES1), (_LIMIT2, _DIAGONAL2, _CONVERGES2)


def draw_fig2(readings: Readings) -> tuple[Figure, ...]:
    """Panels (a) and (b)."""
    return tuple(_bundle(readings, architecture, panel) for architecture, panel, _ in _PANELS)


def draw_theorem(readings: Readings, architecture: str) -> tuple[Figure, ...]:
    """The printed kernel beside the right one, and the variance against the width."""
    return _printed_and_right(readings, architecture), _variance_against_width(readings, architecture)


def _bundle(readings: Readings, architecture: str, panel: str) -> Figure:
    name, theta = NAMES[architecture], _angles(readings)
    return figure(
        (f"bundle_{architecture}", f"Figure 2{panel}: sampled kernels of a {name}, {DEPTH} {_layers(architecture)}"),
        f"Each thin line is one random {name}: red {WIDTHS[0]} units wide, green {WIDTHS[1]}. The thick line "
        "is the limiting kernel (corrected): it runs through the middle of both bundles, and the wide one is narrower.",
        ("angle between the inputs θ (radians)", "tangent kernel G(x, x′)"),
        (
            *(_curves(readings, architecture, width) for width in WIDTHS),
            Line(theta, numbers(limit(architecture, len(theta))), "infinite width", colour=INK),
        ),
    )


def _curves(readings: Readings, architecture: str, width: int) -> Line:
    """The networks of the first replicate as one line with gaps, so that they have one name."""
    kernels = _kernels(readings, architecture, width)[0][:MOST_CURVES]
    gap = torch.full((len(kernels), 1), math.nan, dtype=torch.float64)
    theta = torch.tensor(_angles(readings), dtype=torch.float64).expand(len(kernels), -1)
    x, y = (torch.cat([values, gap], dim=1).flatten() for values in (theta, kernels))
    return Line(numbers(x), numbers(y), f"width {width}", colour=COLOURS[width], faint=True)


def _printed_and_right(readings: Readings, architecture: str) -> Figure:
    theta = _angles(readings)
    means = _kernels(readings, architecture, max(WIDTHS)).mean(1)
    theorem = "Theorem 1" if architecture == "resnet" else "Theorem 2"
    return figure(
        (f"kernel_{architecture}", f"{theorem}: mean kernel, printed and corrected recursion"),
        f"Points are means over random networks {max(WIDTHS)} units wide with their standard "
        "errors over seeds. They lie on the corrected recursion; the recursion as printed misses them.",
        ("angle between the inputs θ (radians)", "tangent kernel"),
        (
            Line(theta, numbers(limit(architecture, len(theta))), "corrected", colour=INK),
            Line(theta, numbers(printed(architecture, len(theta))), "as printed", dashed=True),
            mean_points(theta, means, "mean of random networks"),
        ),
    )


def _variance_against_width(readings: Readings, architecture: str) -> Figure:
    networks = [
        ResNet(DEPTH, width, BRANCH_DEPTH, BRANCH_SCALE) if architecture == "resnet" else DenseNet(DEPTH, width)
        for width in SCALING_WIDTHS
    ]
    exact = [float(kernel_moments(network).variance) for network in networks]
    return figure(
        (f"variance_{architecture}", f"Kernel at equal inputs, {NAMES[architecture]}, {DEPTH} {_layers(architecture)}"),
        "The kernel of a random network converges to the limit: its variance falls like one over the width. "
        "The line is exact.",
        ("width n", "variance of G(x, x)"),
        (
            Line(numbers(SCALING_WIDTHS), numbers(exact), "exact"),
            mean_points(SCALING_WIDTHS, _variances(readings, architecture), "random networks"),
        ),
        log="xy",
    )


def _layers(architecture: str) -> str:
    return "blocks" if architecture == "resnet" else "layers"


def _angles(readings: Readings) -> tuple[float, ...]:
    count = chosen(readings, "bundle")[0].setting("angles")
    return numbers(torch.linspace(0, math.pi, count, dtype=torch.float64))


_FIG2 = (*DRAWN, "The paper gives no depth and no scale for figure 2: here L = 5 and α = 0.5.")
_DRAW_THM1, _DRAW_THM2 = (partial(draw_theorem, architecture=architecture) for architecture, _, _ in _PANELS)

ITEMS = (
    Item("fig2", "sampled against limiting kernels", fig2_runs, FIG2, draw_fig2, tables, _FIG2),
    Item("thm1", "the ResNet kernel", thm1_runs, THM1, _DRAW_THM1, tables, DRAWN),
    Item("thm2", "the DenseNet kernel", thm2_runs, THM2, _DRAW_THM2, tables, DRAWN),
)
