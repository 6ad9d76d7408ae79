"""How much faster is the depth-free DenseNet tangent kernel than walking its layers in torch?

    python benchmarks/densenet_gram.py [--samples 2000] [--depth 100] [--threads 1]

Two direct recursions are timed: ours (stable, float64 inside, in tiles) and the shortest one that can be written, on
whole float32 matrices with arccos, which is quicker and loses digits near equal inputs. The last line is JSON.
"""

import argparse
import json
import math
from dataclasses import replace

import torch
from infinite_width_gram import best_times, deviation, environment, inputs, show

from skiplens.kernels import DenseNetKernel


def naive_recursion(X, depth):
    """Λ and T of every layer for all pairs at once."""
    lengths = X.norm(dim=1) / math.sqrt(X.shape[1])
    Lambda = torch.nn.functional.normalize(X) @ torch.nn.functional.normalize(X).T
    T = torch.zeros_like(Lambda)
    for layer in range(depth):
        angle = torch.acos(Lambda.clamp(-1, 1))
        k0 = 1 - angle / math.pi
        k1 = (torch.sin(angle) + (math.pi - angle) * Lambda) / math.pi
        T = T + (k1 - (1 - k0) * T) / (layer + 1)
        Lambda = Lambda + (k1 - Lambda) / (layer + 1)
    return T * torch.outer(lengths, lengths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    X, kernel = inputs(options.samples, options.features), DenseNetKernel(options.depth)
    direct = replace(kernel, evaluation="recursion")
    kernel.ntk(X)
    ways = {
        "depth-free": (lambda: kernel.ntk(X), 7),
        "recursion, stable": (lambda: direct.ntk(X), 1),
        "recursion, float32 arccos": (lambda: naive_recursion(X, options.depth), 1),
    }
    exact, rows = direct.ntk(X[:150].double()), []
    for name, (action, repetitions) in ways.items():
        wall, cpu = best_times(action, repetitions)
        error = deviation(kernel, action()[:150, :150], exact, X[:150]) if name != "recursion, stable" else 0.0
        rows.append(
            {
                "case": name,
                "wall_s": wall,
                "cpu_s": cpu,
                "cpu_over_depth_free": cpu / (rows or [{"cpu_s": cpu}])[0]["cpu_s"],
                "error": error,
            }
        )
    show(rows)
    print(json.dumps({"environment": environment(), "samples": len(X), "depth": options.depth, "rows": rows}))


if __name__ == "__main__":
    main()
