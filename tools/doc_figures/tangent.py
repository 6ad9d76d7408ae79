"""Pictures of `docs/lenses/tangent.md`: `python tools/doc_figures/tangent.py [--png] [FOLDER]`; a minute or two.

Everything drawn at random has a seed, and the files hold no date: the same code writes the same bytes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

import skiplens as sl
from skiplens import data, zoo
from skiplens.kernels.architectures import DenseNetKernel, InfiniteWidthKernel, ResNetKernel, VanillaKernel
from skiplens.kernels.dynamics import Start, gradient_descent, largest_learning_rate
from skiplens.kernels.finite_width.matrix_free import sample_kernels
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla
from skiplens.kernels.finite_width.simulation import Simulation, estimate
from skiplens.plots.figure import Figure, Line, Points, Reference, numbers
from skiplens.report.lenses import figures_of
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.reading import TangentReading


@dataclass(frozen=True)
class Sizes:
    """How much is drawn: the pictures of the page, or (in tests) a few numbers for each."""

    networks: int = 4000
    bundle: int = 20
    bundle_widths: tuple[int, int] = (50, 500)
    trained_width: int = 512
    steps: int = 300


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures of the page; the name of each is the name of its file."""
    yield from report_figures()
    yield families_against_angle()
    yield scales_against_angle()
    yield mean_against_depth(sizes)
    yield variance_against_depth(sizes)
    yield from (bundle(network, sizes) for network in (ResNet(5, 1, 2, 0.5), DenseNet(5, 1)))
    yield variance_against_width(sizes)
    yield training(sizes)


def report_figures() -> Iterator[Figure]:
    """What `skiplens inspect --lens tangent` shows of a network, and a picture of it with norms that never measured."""
    looks = {"digits_resnet": (zoo.build("digits_resnet"), None)}
    looks["digits_resnet_fresh_eval"] = (zoo.build("digits_resnet").eval(), "kernel_against_angle")
    for name, (model, wanted) in looks.items():
        reading = sl.inspect(model, data.load("sample"), lenses=["tangent"]).reading(TangentReading)
        assert reading is not None
        for figure in figures_of(reading):
            if wanted in (None, figure.name):
                yield replace(figure, name=f"{name}_{figure.name}")


def pairs(angles: Tensor) -> Tensor:
    """A vector of the plane with ‖x‖² = d = 2 for each angle; the first axis has angle 0."""
    return torch.stack([angles.cos(), angles.sin()], dim=1) * 2**0.5


def against_angle(kernel: InfiniteWidthKernel, name: str, dashed: bool = False) -> Line:
    """The kernel over its value at equal inputs."""
    angles = torch.linspace(0, math.pi, 200, dtype=torch.float64)
    x = pairs(angles)
    return Line(numbers(angles), numbers(kernel.ntk(x[:1], x)[0] / kernel.diagonal(x[:1])), name, dashed)


def families_against_angle() -> Figure:
    """Residual, dense and plain networks, shallow and deep."""
    lines = []
    for depth, dashed in ((3, False), (100, True)):
        lines += [
            against_angle(ResNetKernel(depth, 2, depth**-0.5), f"residual, {depth} blocks, α = 1/√L", dashed),
            against_angle(DenseNetKernel(depth), f"dense, {depth} layers", dashed),
            against_angle(VanillaKernel(depth), f"plain, {depth} layers", dashed),
        ]
    return Figure(
        name="families",
        title="Tangent kernel against the angle between inputs",
        caption="A deep plain network holds all unequal inputs equally far apart; depth hardly changes a residual one.",
        x_label="angle between the inputs (radians)",
        y_label="kernel over its value at equal inputs",
        marks=tuple(lines),
    )


def scales_against_angle() -> Figure:
    """A residual network at three depths, with branches that shrink and with branches that do not."""
    shrinking = [against_angle(ResNetKernel(L, 2, L**-0.5), f"α = 1/√L, L = {L}") for L in (10, 100, 1000)]
    fixed = [
        against_angle(ResNetKernel(L, 2, 1.0, normalise=True), f"α = 1, L = {L}", dashed=True) for L in (10, 100, 1000)
    ]
    return Figure(
        name="scales",
        title="Residual networks with shrinking and with fixed branches",
        caption="With shrinking branches depth changes nothing; with fixed ones all unequal inputs end at 1/4.",
        x_label="angle between the inputs (radians)",
        y_label="kernel over its value at equal inputs",
        marks=(*shrinking, *fixed, Reference(0.25, "1/4")),
    )


def of_depth(depth: int) -> dict[str, Network]:
    """The networks whose mean and variance are drawn against depth."""
    return {
        "residual, α = 1/√L": ResNet(depth, 100, 2, depth**-0.5),
        "residual, α = 0.3": ResNet(depth, 100, 2, 0.3),
        "dense": DenseNet(depth, 100),
        "plain": Vanilla(depth, 100),
    }


SAMPLED_DEPTHS = (1, 2, 5, 10, 20, 50, 100)
DEPTHS = sorted({round(10 ** (exponent / 20)) for exponent in range(41)})
MOST_SAMPLED_DEPTH = {"plain": 20}  # beyond it the largest of some thousand networks decides the variance alone


def sampled_networks() -> list[Network]:
    """The networks of `of_depth` that are drawn."""
    return [
        network
        for depth in SAMPLED_DEPTHS
        for name, network in of_depth(depth).items()
        if depth <= MOST_SAMPLED_DEPTH.get(name, math.inf)
    ]


def exact_lines(quantity: str) -> list[Line]:
    """A field of the exact moments against depth, one line for each kind of network."""
    names = list(of_depth(1))
    values = {name: [getattr(kernel_moments(of_depth(depth)[name]), quantity) for depth in DEPTHS] for name in names}
    return [Line(numbers(DEPTHS), numbers(values[name]), name) for name in names]


@cache  # two pictures show the same networks
def drawn_diagonals(network: Network, networks: int) -> Tensor:
    """The kernel's diagonal of random networks over its exact mean."""
    x = torch.ones(1, 1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(network.depth * network.width)
    return sample_kernels(network, x, networks, generator).samples[:, 0, 0] / float(kernel_moments(network).mean)


def sampled_means(networks: list[Network], count: int) -> Points:
    """Means of drawn networks against depth, with their standard errors."""
    found = [estimate(drawn_diagonals(network, count)) for network in networks]
    means = [float(kernel_moments(network).mean) for network in networks]
    values = [entry.value * mean for entry, mean in zip(found, means, strict=True)]
    errors = [entry.standard_error * mean for entry, mean in zip(found, means, strict=True)]
    return Points(numbers([network.depth for network in networks]), numbers(values), drawn(count), numbers(errors))


def sampled_variances(places: list[int], networks: list[Network], count: int) -> Points:
    """Variances over squared exact means of drawn networks, with their standard errors."""
    found = [estimate((drawn_diagonals(network, count) - 1).square()) for network in networks]
    values, errors = [entry.value for entry in found], [entry.standard_error for entry in found]
    return Points(numbers(places), numbers(values), drawn(count), numbers(errors))


def drawn(count: int) -> str:
    """What the points are."""
    return f"{count:,} networks drawn"


def mean_against_depth(sizes: Sizes) -> Figure:
    """The mean of the kernel's diagonal: exact curves, sampled points."""
    return Figure(
        name="mean",
        title="Mean of the tangent kernel at equal inputs, width 100",
        caption="With a fixed branch scale the kernel grows exponentially with depth; with α = 1/√L it stays.",
        x_label="depth L",
        y_label="mean of the kernel",
        marks=(*exact_lines("mean"), sampled_means(sampled_networks(), sizes.networks)),
        x_log=True,
        y_log=True,
    )


def variance_against_depth(sizes: Sizes) -> Figure:
    """The relative variance of the kernel's diagonal: exact curves, sampled points."""
    networks = sampled_networks()
    points = sampled_variances([network.depth for network in networks], networks, sizes.networks)
    return Figure(
        name="variance",
        title="Variance over squared mean of the tangent kernel, width 100",
        caption="In a plain network chance decides more with every layer; with α = 1/√L depth adds nothing.",
        x_label="depth L",
        y_label="variance over squared mean",
        marks=(*exact_lines("relative_variance"), points),
        x_log=True,
        y_log=True,
    )


def bundle(architecture: ResNet | DenseNet, sizes: Sizes) -> Figure:
    """Kernels of random networks of two widths around the limit (the paper's figure 2)."""
    angles = torch.linspace(0, math.pi, 20, dtype=torch.float64)
    residual = isinstance(architecture, ResNet)
    depth, name = architecture.depth, "residual" if residual else "dense"
    limit: InfiniteWidthKernel = ResNetKernel(depth, 2, 0.5) if residual else DenseNetKernel(depth)
    marks = [drawn_kernels(architecture, width, angles, sizes.bundle) for width in sizes.bundle_widths]
    curve = limit.ntk(pairs(angles)[:1], pairs(angles))[0]
    return Figure(
        name=f"bundle_{name}",
        title=f"{sizes.bundle} random {name} networks of each width, {depth} layers",
        caption="The wider the networks, the narrower their bundle: ten times the width, a third of the spread.",
        x_label="angle between the inputs (radians)",
        y_label="tangent kernel",
        marks=(*marks, Points(numbers(angles), numbers(curve), "infinite width")),
    )


def drawn_kernels(architecture: ResNet | DenseNet, width: int, angles: Tensor, count: int) -> Line:
    """All curves of one width as one line with gaps, so that they have one colour."""
    network: Network = (
        ResNet(architecture.depth, width, architecture.branch_depth, architecture.branch_scale)
        if isinstance(architecture, ResNet)
        else DenseNet(architecture.depth, width)
    )
    generator = torch.Generator().manual_seed(width)
    curves = Simulation(network).kernels(pairs(angles).float(), count, generator).samples[:, 0].double()
    gap = torch.full((count, 1), math.nan, dtype=torch.float64)
    x = torch.cat([angles.expand(count, -1), gap], dim=1)
    return Line(numbers(x), numbers(torch.cat([curves, gap], dim=1)), f"width {width}")


def of_width(width: int) -> dict[str, Network]:
    """The networks whose variance is drawn against width."""
    return {
        "residual, α = 1/√L": ResNet(20, width, 2, 20**-0.5),
        "dense": DenseNet(20, width),
        "plain": Vanilla(20, width),
    }


def variance_against_width(sizes: Sizes) -> Figure:
    """The relative variance of the kernel's diagonal at depth 20 against the width."""
    widths = [round(10 ** (1 + exponent / 10)) for exponent in range(21)]
    exact = {name: [kernel_moments(of_width(n)[name]).relative_variance for n in widths] for name in of_width(1)}
    lines = [Line(numbers(widths), numbers(values), name) for name, values in exact.items()]
    sampled = [of_width(n)[name] for n in (10, 100, 1000) for name in of_width(1) if name != "plain" or n >= 100]
    return Figure(
        name="width",
        title="Variance over squared mean of the tangent kernel, depth 20",
        caption="Ten times the width, a tenth of the variance. At 0.01 the kernel varies by 10 % between networks.",
        x_label="width",
        y_label="variance over squared mean",
        marks=(
            *lines,
            sampled_variances([network.width for network in sampled], sampled, sizes.networks),
            Reference(0.01, "varies by 10 %"),
        ),
        x_log=True,
        y_log=True,
    )


def training(sizes: Sizes) -> Figure:
    """The loss of a trained wide network beside what two kernels foretell."""
    x, targets = threes_and_fives(40)
    network = zoo.build("tangent_resnet", depth=5, width=sizes.trained_width, branch_scale=5**-0.5, input_features=784)
    start = Start(network(x).detach())
    limit = ResNetKernel(5, 2, 5**-0.5, trained="all").ntk(x)
    rate, steps = 0.5 * largest_learning_rate(limit), torch.arange(sizes.steps + 1)
    foretold = {"kernel of this network at the start": empirical_ntk(network, x), "kernel of infinite width": limit}
    lines = [
        Line(numbers(steps), numbers(gradient_descent(kernel, targets, steps, rate, start).loss), name, dashed=True)
        for name, kernel in foretold.items()
    ]
    losses = trained_losses(network, x, targets, rate, sizes.steps)
    return Figure(
        name="training",
        title=f"Training a residual network of width {sizes.trained_width} on 40 images",
        caption="The loss follows what the kernel at the start foretells, until the kernel itself has moved.",
        x_label="steps of gradient descent",
        y_label="squared loss",
        marks=(Line(numbers(steps), numbers(losses), "trained network"), *lines),
        y_log=True,
    )


def threes_and_fives(count: int) -> tuple[Tensor, Tensor]:
    """Embedded images of threes and fives with ‖x‖² = d, and 1 or −1."""
    digits = data.sample()
    chosen = ((digits.labels == 3) | (digits.labels == 5)).nonzero()[:count, 0]
    x = torch.nn.functional.normalize(digits.pixels()[chosen].flatten(1)) * 784**0.5
    return x, torch.where(digits.labels[chosen] == 3, 1.0, -1.0)[:, None]


def trained_losses(network: torch.nn.Module, x: Tensor, targets: Tensor, rate: float, steps: int) -> list[float]:
    """‖f − y‖² before each step of gradient descent on all samples, and after the last."""
    descent, losses = torch.optim.SGD(network.parameters(), lr=rate), []
    for _ in range(steps + 1):
        descent.zero_grad()
        loss = (network(x) - targets).square().sum()
        loss.backward()
        losses.append(loss.item())
        descent.step()
    return losses


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "tangent_", __doc__)
