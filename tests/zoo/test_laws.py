import math

import pytest

from skiplens.zoo import weight_laws
from tests.tolerances import STANDARD_ERRORS

SHAPE = (20, 6, 5, 5)

# law, variance of a weight of this shape, fourth moment over squared variance
MOMENTS = {
    "standard_normal": (weight_laws.standard_normal, 1.0, 3.0),
    "normal_over_inputs": (weight_laws.normal_over_inputs(0.3), 0.09 / 150, 3.0),
    "he_over_outputs": (weight_laws.he_over_outputs, 2 / 500, 3.0),
    "uniform_over_inputs": (weight_laws.uniform_over_inputs, 1 / 3 / 150, 9 / 5),
}


@pytest.mark.parametrize(("law", "variance", "kurtosis"), MOMENTS.values(), ids=MOMENTS)
def test_mean_and_variance(law, variance, kurtosis, generator):
    weights = law(SHAPE, generator)
    assert weights.shape == SHAPE
    assert abs(weights.mean().item()) < STANDARD_ERRORS * math.sqrt(variance / weights.numel())
    error = variance * math.sqrt((kurtosis - 1) / weights.numel())
    assert abs(weights.square().mean().item() - variance) < STANDARD_ERRORS * error


def test_uniform_biases_have_one_number_for_each_output_and_the_bound_of_the_weights(generator):
    biases = weight_laws.uniform_biases_over_inputs((5000, 6, 5, 5), generator)
    assert biases.shape == (5000,)
    assert 0.99 / math.sqrt(150) < biases.abs().max() <= 1 / math.sqrt(150)
