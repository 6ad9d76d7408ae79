"""How much faster than direct summation are complexity and path weights of deep networks for many depth ratios?

    python benchmarks/path_weights.py [--depth 100000] [--ratios 10000] [--lengths 100] [--threads 1]

Direct summation adds up all path lengths in log space for each depth ratio, a few ratios at a time, with the binomial
coefficients computed once beforehand (not timed). The three-term recursion of the squared sums is timed too. Values are
compared before anything is timed; the last line is JSON.
"""

import argparse
import json

import torch
from infinite_width_gram import best_times, environment, show

from skiplens.theory.path_weights import log_path_counts, log_path_weights, path_moments
from skiplens.theory.spin_glass import complexity, network_complexity


class DirectSummation:
    """Every term of every sum."""

    def __init__(self, depth, ratios_at_once=16):
        self.log_binomials = log_path_counts(depth, 1)
        self.branches = torch.arange(depth, dtype=torch.float64)
        self.ratios_at_once = ratios_at_once

    def logs(self, ratios):
        """log C(p−1, j) β^j for some ratios."""
        return torch.addcmul(self.log_binomials, self.branches, ratios.log()[:, None])

    def complexity(self, ratios):
        """θ of the mixture with its linear term, from v' and v''."""
        pieces = []
        for some in ratios.split(self.ratios_at_once):
            squares = torch.softmax(2 * self.logs(some), 1)
            mean = squares @ self.branches
            square = squares @ self.branches.square()
            pieces.append(complexity((square + mean) / (1 + mean)))
        return torch.cat(pieces)

    def log_weights(self, ratios, lengths):
        """log ε_r of the lengths."""
        pieces = []
        for some in ratios.split(self.ratios_at_once):
            logs = self.logs(some)
            pieces.append(logs[:, lengths - 1] - torch.logsumexp(2 * logs, 1, keepdim=True) / 2)
        return torch.cat(pieces)


def by_recursion(depth, ratios):
    """θ from the ratio R of neighbouring squared sums, one step for each block."""
    q, x = depth - 1, ratios.square()
    R, difference = 1 + x, (1 - x).square()
    for k in range(1, q):
        R = ((2 * k + 1) * (1 + x) - k * difference / R) / (k + 1)
    mean = q / 2 * (1 - (1 - x) / R)
    return complexity((q**2 * x / R + mean) / (1 + mean))


def deviation(actual, expected):
    """Largest deviation, relative where values exceed 1."""
    return float(((actual - expected).abs() / expected.abs().clamp(min=1)).max())


def compare(what, ours, direct, depth, ratios):
    """Check the values on some ratios, then time both ways on all of them."""
    some = ratios[:: max(1, len(ratios) // 200)]
    error = deviation(ours(some), direct(some))
    if error > 1e-8:
        raise SystemExit(f"{what}: values differ by {error:.2g}")
    ours(ratios)
    wall, cpu = best_times(lambda: ours(ratios), 5)
    direct_wall, direct_cpu = best_times(lambda: direct(ratios), 1)
    return {
        "case": what,
        "skiplens_wall_s": wall,
        "skiplens_cpu_s": cpu,
        "other_wall_s": direct_wall,
        "other_cpu_s": direct_cpu,
        "speed_up_cpu": direct_cpu / cpu,
        "deviation": error,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=100_000)
    parser.add_argument("--ratios", type=int, default=10_000)
    parser.add_argument("--lengths", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    depth, ratios = options.depth, torch.logspace(-3, 3, options.ratios, dtype=torch.float64)
    lengths = torch.linspace(1, depth, options.lengths).round().long()
    direct = DirectSummation(depth)

    def ours(some):
        return network_complexity(depth, some, shortest=1)

    rows = [
        compare("complexity", ours, direct.complexity, depth, ratios),
        compare("complexity, recursion", ours, lambda some: by_recursion(depth, some), depth, ratios),
        compare(
            f"weights, {options.lengths} lengths",
            lambda some: log_path_weights(depth, some, lengths),
            lambda some: direct.log_weights(some, lengths),
            depth,
            ratios,
        ),
    ]
    assert torch.isfinite(path_moments(depth, ratios).mean).all(), "nothing may overflow"
    show(rows)
    print(json.dumps({"environment": environment(), "depth": depth, "ratios": len(ratios), "rows": rows}))


if __name__ == "__main__":
    main()
