import itertools

import pytest
import torch

from skiplens.paths.bands import limit_fraction
from skiplens.paths.weights import path_moments


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 4.0])
def test_moments_approach_their_limits_like_one_over_depth(ratio):
    depths = [100, 1000, 10000]
    fraction = ratio / (1 + ratio)
    means = [abs(path_moments(p, ratio).mean.item() - ((p - 0.5) * fraction + 0.75)) for p in depths]
    # half of a binomial's variance, for the square
    variances = [abs(path_moments(p, ratio).variance.item() - (p - 0.5) * fraction / (1 + ratio) / 2) for p in depths]
    for errors in (means, variances):
        for error, later in itertools.pairwise(errors):
            # ten times the depth, a tenth of the error (to 15 %), down to the rounding of the mean
            assert later <= 0.115 * error + 1e-11


def test_fraction():
    assert limit_fraction(torch.tensor([1.0, 3.0])).tolist() == [0.5, 0.75]
