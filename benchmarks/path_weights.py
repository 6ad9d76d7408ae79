"""How much faster than direct summation are complexity and path weights of deep networks for many depth ratios?

10,000 depth ratios between 1/1000 and 1000. Direct summation adds up all path lengths in log space for each of them, a
few ratios at a time, with the binomial coefficients computed beforehand (not timed); it is run on a tenth of the
ratios. The three-term recursion of the squared sums is timed too.
"""

import math

import numpy as np
import torch
from rows import Floor, Row, Target
from ways import Way

from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import complexity, network_complexity
from skiplens.paths.weights import log_binomial, log_path_weights

RATIOS, LENGTHS = 10_000, 100


class DirectSummation:
    """Every term of every sum."""

    def __init__(self, depth, ratios_at_once=16):
        even_odds = torch.ones((), dtype=torch.float64)
        self.log_binomials = log_binomial(torch.arange(depth), depth - 1, even_odds) + (depth - 1) * math.log(2)
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


def depth_ratios(step=1):
    return torch.logspace(-3, 3, RATIOS, dtype=torch.float64)[::step]


def path_lengths(depth):
    return torch.linspace(1, depth, LENGTHS).round().long()


def complexities(depth):
    ratios = depth_ratios()
    return lambda: network_complexity(depth, ratios, shortest=1)


def summed_complexities(depth):
    direct, ratios = DirectSummation(depth), depth_ratios(10)
    return lambda: direct.complexity(ratios)


def recursive_complexities(depth):
    ratios = depth_ratios()
    return lambda: by_recursion(depth, ratios)


def weights(depth):
    ratios, lengths = depth_ratios(), path_lengths(depth)
    return lambda: log_path_weights(depth, ratios, lengths)


def summed_weights(depth):
    direct, ratios, lengths = DirectSummation(depth), depth_ratios(10), path_lengths(depth)
    return lambda: direct.log_weights(ratios, lengths)


def deviation(ours, theirs):
    """Largest deviation where both were computed, relative where values exceed 1; infinite if anything overflowed."""
    if not np.isfinite(ours).all():
        return np.inf
    ours = ours[:: len(ours) // len(theirs)]
    return float((np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1)).max())


def _way(function, **more):
    return Way("path_weights", function, **{"warm": {"depth": 10}, "repeats": 5, **more})


SUM, RECURSION = "direct summation", "three-term recursion"
ROWS = [
    Row(
        "complexity",
        "complexity of networks with 100,000 layers, 10,000 depth ratios",
        _way("complexities"),
        (1000, 10_000, 100_000),
        (10, 20),
        {
            SUM: _way("summed_complexities", repeats=1, share=0.1),
            RECURSION: _way("recursive_complexities", repeats=1),
        },
        "depth",
        lambda depth: Floor(bytes=16 * RATIOS),
        targets=(Target("≥ 20 × direct summation", SUM, least=20), Target("≥ 20 × the recursion", RECURSION, least=20)),
        tolerance=1e-8,
        compare=deviation,
    ),
    Row(
        "weights",
        "100 path weights of networks with 100,000 layers, 10,000 depth ratios",
        _way("weights"),
        (1000, 10_000, 100_000),
        (200, 400),
        {SUM: _way("summed_weights", repeats=1, share=0.1)},
        "depth",
        lambda depth: Floor(bytes=8 * RATIOS * LENGTHS),
        targets=(Target("≥ 20 × direct summation", SUM, least=20),),
        tolerance=1e-8,
        compare=deviation,
    ),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
