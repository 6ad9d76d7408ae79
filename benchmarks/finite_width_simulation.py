"""How much cheaper are tangent kernels of random finite networks drawn without their weights?

    python benchmarks/finite_width_simulation.py [--depths 10 30 100] [--networks 200] [--width 500] [--inputs 20]
    python benchmarks/finite_width_simulation.py --neural-tangents PYTHON   # an environment that has it: one more row

Every row gives the tangent kernels (all layers trained, float32) of random ResNets with two matrices per branch and
α = depth^-1/2 on the same inputs. Times are per network, so that the slow ways may draw fewer of them; they exclude the
first call, which loads and compiles. `z` is the deviation of the mean diagonal from its exact mean in standard errors.
Prints a table and, as the last line, the same numbers as JSON with the environment.
"""

import argparse
import json
import subprocess
import time

import torch
from infinite_width_gram import environment, inputs, show

from skiplens.theory.finite_width import (
    DenseNet,
    KernelSamples,
    ResNet,
    Simulation,
    Vanilla,
    kernel_moments,
    sample_kernels,
)

NEURAL_TANGENTS = """
import sys, time, warnings
warnings.simplefilter("ignore")
import jax, numpy as np
import neural_tangents as nt
from neural_tangents import stax
depth, width, networks = map(int, sys.argv[1:4])
x = np.array(eval(sys.stdin.read()), dtype="float32")
alpha = depth ** -0.5
branch = stax.serial(stax.Dense(width, alpha**0.5), stax.Relu(), stax.Dense(width, (2 * alpha) ** 0.5))
block = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), branch), stax.FanInSum())
init, apply, _ = stax.serial(stax.Dense(width, 1.0), stax.repeat(block, depth), stax.Dense(1, 1.0))
kernel = nt.monte_carlo_kernel_fn(init, apply, jax.random.PRNGKey(0), networks)
kernel(x, None, "ntk").block_until_ready()  # compiles
wall, cpu = time.perf_counter(), time.process_time()
kernel(x, None, "ntk").block_until_ready()
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def resnet(depth, width):
    return ResNet(depth, width, 2, depth**-0.5)


def timed(draw, networks):
    draw(2)
    wall, cpu = time.perf_counter(), time.process_time()
    samples = draw(networks)
    return samples, (time.perf_counter() - wall) / networks, (time.process_time() - cpu) / networks


def loop_over_networks(network, X, networks, generator):
    """One torch network after the other: per-input gradients by vmap, one product per matrix."""
    n, d, scale = network.width, X.shape[1], (network.branch_scale / network.width) ** 0.5

    def output(weights, x):
        y = weights[0] @ x / d**0.5
        for block in range(network.depth):
            hidden = torch.relu(scale * weights[1 + 2 * block] @ y) * 2**0.5
            y = y + scale * weights[2 + 2 * block] @ hidden
        return (weights[-1] @ y / n**0.5)[0]

    shapes = [(n, d), *[(n, n)] * (2 * network.depth), (1, n)]
    kernels = []
    for _ in range(networks):
        weights = [torch.randn(shape, generator=generator) for shape in shapes]
        gradients = torch.func.vmap(torch.func.grad(output), (None, 0))(weights, X)
        flat = (gradient.flatten(1) for gradient in gradients)
        kernels.append(sum(part @ part.T for part in flat))
    return KernelSamples(torch.stack(kernels))


def row(case, network, X, draw, networks):
    samples, wall, cpu = timed(draw, networks)
    diagonals = samples.samples.diagonal(dim1=1, dim2=2).double() / (X.square().sum(1) / X.shape[1])
    mean, error = diagonals.mean(), diagonals.mean(1).std() / networks**0.5
    deviation = float((mean - kernel_moments(network, "all").mean) / error)
    return {
        "case": case,
        "networks": networks,
        "wall_s_per_200": 200 * wall,
        "cpu_s_per_200": 200 * cpu,
        "z": deviation if networks >= 30 else "",  # a few networks have no usable standard error
    }


def neural_tangents(python, network, X, networks):
    command = [python, "-c", NEURAL_TANGENTS, str(network.depth), str(network.width), str(networks)]
    run = subprocess.run(command, input=repr(X.tolist()), capture_output=True, text=True, check=True)
    wall, cpu = map(float, run.stdout.split())
    scale = 200 / networks
    return {
        "case": f"neural-tangents, L={network.depth}",
        "networks": networks,
        "wall_s_per_200": scale * wall,
        "cpu_s_per_200": scale * cpu,
    }


def rows_of(options, X, depth):
    generator, network = torch.Generator().manual_seed(depth), resnet(depth, options.width)
    few = max(2, options.networks * 10 // (20 * depth))
    rows = [
        row(
            f"{name}, L={depth}", spec, X, lambda k, s=spec: sample_kernels(s, X, k, generator, "all"), options.networks
        )
        for name, spec in {
            "resnet, matrix-free": network,
            "densenet, matrix-free": DenseNet(depth, options.width),
            "vanilla, matrix-free": Vanilla(depth, options.width),
        }.items()
    ]
    simulation = Simulation(network, trained="all")
    rows.append(row(f"resnet, weights, L={depth}", network, X, lambda k: simulation.kernels(X, k, generator), few))
    loop = row(
        f"resnet, torch loop, L={depth}", network, X, lambda k: loop_over_networks(network, X, k, generator), few
    )
    rows.append(loop)
    if options.neural_tangents:
        rows.append(neural_tangents(options.neural_tangents, network, X, max(2, 2 * options.networks // depth)))
    for entry in rows:
        entry["cpu_over_matrix_free"] = entry["cpu_s_per_200"] / rows[0]["cpu_s_per_200"]
    return rows


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="a Python that can import neural_tangents")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    X = inputs(options.inputs, options.features)
    rows = [entry for depth in options.depths for entry in rows_of(options, X, depth)]
    show(rows)
    settings = {"width": options.width, "inputs": options.inputs, "features": options.features}
    print(json.dumps({"environment": environment(), **settings, "rows": rows}))


if __name__ == "__main__":
    main()
