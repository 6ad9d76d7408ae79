import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import (
    complexity,
    network_complexity,
    network_complexity_slope,
    printed_complexity,
    simple_landscape_threshold,
)
from skiplens.paths.weights import path_moments
from tests.tolerances import assert_close

FIGURE = [  # beta, v', v'', B, theta without the linear term, as printed in the theory note for 100 layers
    (0.01, 2.2327740845251, 2.978092321925, 1.3338081727862, 0.00098753113451422),
    (0.02, 2.8511777465744, 6.0316061024463, 2.1154788086057, 0.016596486156625),
    (0.05, 5.4831943672557, 26.834003873134, 4.8938633350989, 0.13332701834771),
    (0.1, 9.7921741855912, 90.207832185019, 9.212237290239, 0.30610984145815),
    (0.2, 17.33178479607, 289.9695602285, 16.730507771724, 0.52141686075092),
    (0.5, 33.916189551588, 1127.4476791468, 33.242168240387, 0.81031711516783),
    (1.0, 50.5, 2512.1878172589, 49.746293411067, 0.99287972374501),
    (2.0, 67.083810448412, 4444.2097688291, 66.248618543319, 1.1264476941182),
    (5.0, 83.66821520393, 6923.6126010146, 82.750810258581, 1.2317972689057),
    (10.0, 91.207826380182, 8231.7731024165, 90.252924876249, 1.2732251083451),
    (100.0, 99.317204892306, 9765.0904508936, 98.32224398061, 1.3142616202963),
]


@pytest.mark.parametrize(("ratio", "mean", "factorial", "B", "theta"), FIGURE)
def test_printed_figure(ratio, mean, factorial, B, theta):
    moments = path_moments(100, ratio, shortest=2)
    assert moments.mean.item() == pytest.approx(mean, rel=1e-12)
    assert moments.factorial.item() == pytest.approx(factorial, rel=1e-12)
    assert moments.curvature_ratio.item() == pytest.approx(B, rel=1e-12)
    assert network_complexity(100, ratio).item() == pytest.approx(theta, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "B", "printed"),
    [
        (0.01, 0.98019801980198, -3.3335333476e-7),
        (0.02, 2.0415148502627, 0.01441312019365),
        (0.05, 4.8934403348392, 0.13330815482291),
        (0.1, 9.2122372297005, 0.30610983933336),
    ],
)
def test_printed_figure_with_the_linear_term(ratio, B, printed):
    found = path_moments(100, ratio).curvature_ratio
    assert found.item() == pytest.approx(B, rel=1e-12)
    assert printed_complexity(found).item() == pytest.approx(printed, rel=1e-9)
    assert network_complexity(100, ratio, shortest=1).item() == pytest.approx(max(printed, 0), rel=1e-12)


def test_printed_values_for_ten_layers():
    ratios = torch.tensor([0.1, 0.5, 1.0, 2.0, 10.0])
    printed = [0.00032503956893159, 0.057120830253744, 0.12540219185116, 0.19167708859495, 0.27990656794314]
    assert network_complexity(10, ratios).tolist() == pytest.approx(printed, rel=1e-12)
    assert network_complexity(10, 1e9).item() == pytest.approx(0.2986122886681, rel=1e-8)


def test_complexity_grows_with_the_depth_ratio_and_stays_below_the_pure_model():
    theta = network_complexity(100, torch.logspace(-3, 3, 61))
    assert (theta.diff() > 0).all()
    assert theta.max() < complexity(99.0)


def test_slope_equals_differences():
    for ratio in (0.05, 0.7, 20.0):
        step = 1e-4
        upper, lower = (network_complexity(30, ratio * (1 + sign * step)) for sign in (1, -1))
        slope = (upper - lower) / torch.log(torch.tensor((1 + step) / (1 - step)))
        assert_close(network_complexity_slope(30, ratio), slope, relative=1e-6)


@pytest.mark.parametrize(
    ("depth", "ratio"),
    [
        (3, 0.7598356856515925),
        (5, 0.3022517230918412),
        (10, 0.12040732145010942),
        (30, 0.03533174741665149),
        (100, 0.010172681181121903),
        (1000, 0.0010017006345146681),
    ],
)
def test_printed_thresholds(depth, ratio):
    assert simple_landscape_threshold(depth) == pytest.approx(ratio, rel=1e-13)
    assert path_moments(depth, ratio).curvature_ratio.item() == pytest.approx(1, rel=1e-13)


def test_two_layers_have_no_threshold():
    with pytest.raises(InvalidInputError, match=r"depth 2 has B < 1 for every depth ratio, .* depth must be >= 3"):
        simple_landscape_threshold(2)


def test_many_ratios_of_a_very_deep_network():
    theta = network_complexity(10**5, torch.logspace(-4, 4, 50))
    assert torch.isfinite(theta).all()
    assert (theta.diff() > 0).all()
