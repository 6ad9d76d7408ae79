"""How much cheaper are tangent kernels of random finite networks drawn without their weights?

Tangent kernels (all layers trained, float32) of 200 random ResNets of width 500 with two matrices per branch and
α = 1/√L on 20 inputs. The slow ways draw fewer networks, and their time is scaled to 200. What is compared is the mean
of the kernels' diagonal over networks: a few random networks agree to some per cent only, hence the tolerance.
"""

import torch
from infinite_width_gram import gaussian_inputs
from rows import Floor, Row, Target
from ways import Way

from skiplens.kernels.finite_width.matrix_free import sample_kernels
from skiplens.kernels.finite_width.networks import ResNet
from skiplens.kernels.finite_width.simulation import Simulation

WIDTH, INPUTS, FEATURES, NETWORKS = 500, 20, 10, 200


def resnet(depth, width=WIDTH):
    return ResNet(depth, width, 2, depth**-0.5)


def without_weights(depth, networks=NETWORKS, width=WIDTH):
    X = gaussian_inputs(INPUTS, FEATURES)
    return lambda: sample_kernels(resnet(depth, width), X, networks, torch.Generator().manual_seed(1), "all").samples


def with_weights(depth, networks, width=WIDTH):
    X, simulation = gaussian_inputs(INPUTS, FEATURES), Simulation(resnet(depth, width), trained="all")
    return lambda: simulation.kernels(X, networks, torch.Generator().manual_seed(1)).samples


def torch_loop(depth, networks, width=WIDTH):
    """One torch network after the other: per-input gradients by vmap, one product per matrix."""
    X, generator = gaussian_inputs(INPUTS, FEATURES), torch.Generator().manual_seed(1)
    scale, shapes = (depth**-0.5 / width) ** 0.5, [(width, FEATURES), *[(width, width)] * (2 * depth), (1, width)]

    def output(weights, x):
        y = weights[0] @ x / FEATURES**0.5
        for block in range(depth):
            hidden = torch.relu(scale * weights[1 + 2 * block] @ y) * 2**0.5
            y = y + scale * weights[2 + 2 * block] @ hidden
        return (weights[-1] @ y / width**0.5)[0]

    def kernel():
        weights = [torch.randn(shape, generator=generator) for shape in shapes]
        gradients = torch.func.vmap(torch.func.grad(output), (None, 0))(weights, X)
        return sum(gradient.flatten(1) @ gradient.flatten(1).T for gradient in gradients)

    return lambda: torch.stack([kernel() for _ in range(networks)])


def mean_diagonal(kernels):
    """The mean over inputs and networks of the kernel of an input with itself, for inputs of ‖x‖² = d."""
    lengths = gaussian_inputs(INPUTS, FEATURES).square().sum(1) / FEATURES
    return (kernels.diagonal(dim1=1, dim2=2) / lengths).mean()


def floor(depth):
    """One product of all inputs with each other a layer, and the random numbers of a layer written once."""
    layers = NETWORKS * 2 * depth
    return Floor(layers * 2 * INPUTS**2 * WIDTH, layers * INPUTS * WIDTH * 4)


def _row(sizes, networks):
    """`networks` are drawn by the slow ways."""
    slow, small = {"arguments": {"networks": networks}, "share": networks / NETWORKS, "repeats": 1}, {"depth": 1}
    mine = {"module": "finite_width_simulation", "warm": small, "keep": "mean_diagonal"}
    theirs = {"module": "neural_tangents_ways", "environment": "neural_tangents", "untimed": 1}
    loop, monte_carlo = "a loop over torch networks", "neural-tangents, Monte Carlo"
    return Row(
        f"simulation-{sizes[-1]}",
        f"200 tangent kernels of random ResNets, width 500, L = {sizes[-1]}",
        Way(function="without_weights", **mine),
        sizes,
        (1, 2),
        {
            "Skiplens, with weights": Way(function="with_weights", **mine, **slow),
            loop: Way(function="torch_loop", **mine, **slow),
            monte_carlo: Way(function="monte_carlo", keep="mean_diagonal", **theirs, **slow),
        },
        "depth",
        floor=floor,
        targets=(Target(f"≥ 50 × {loop}", loop, least=50), Target(f"≥ 50 × {monte_carlo}", monte_carlo, least=50)),
        tolerance=0.3,
    )


ROWS = [_row((3, 5, 10), 10), _row((10, 30, 100), 2)]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
