"""Theorems 2.3, 4.5 and 4.7: the theory's reference values and closed forms; how they are judged."""

import math

import pytest
import torch

from skiplens.papers.macdonald2023_regularity import thm2_3, thm4_5, thm4_7
from skiplens.papers.macdonald2023_regularity.common import SCALES, RandomResidualNetwork
from skiplens.papers.macdonald2023_regularity.guaranteed import regularity
from tests.jacobians.systems.reference import data_a, start_a
from tests.papers.macdonald2023_regularity.readings import judged, made
from tests.tolerances import assert_close


def test_the_network_of_the_study_is_that_of_the_theory():
    """REF-A: λ(DF) and the bound of equation 12."""
    found = regularity(RandomResidualNetwork().system(), start_a(), data_a())
    assert found.true == pytest.approx(0.096134421766681, rel=1e-12)
    assert found.from_layers == pytest.approx(0.033650568613838, rel=1e-12)


def test_least_squares_by_its_eigenvectors(seed):
    """Residuals shrink by 1 − η s² along each left singular vector."""
    settings = thm2_3.Quadratic(iterations=30, seed=seed)
    generator = settings.stream()
    A, y, start = (torch.randn(shape, generator=generator) for shape in ((10, 30), (10,), (30,)))
    U, s, _ = torch.linalg.svd(A, full_matrices=False)
    found = thm2_3.descent_quadratic(settings)
    for row, share in enumerate(thm2_3.STEPS):
        factors = (1 - share / s[0] ** 2 * s**2)[:, None] ** (2 * torch.arange(31))
        residuals = (U.T @ (A @ start - y)).square()
        assert_close(found["loss"][row], (residuals[:, None] * factors).sum(0) / 2, relative=1e-10)
    rate = 1 - 2 * float(s[-1] ** 2 / s[0] ** 2) * 0.5
    assert_close(found["bound"][2], found["loss"][2, 0] * rate ** torch.arange(31), relative=1e-10)
    assert float(found["beta"]) == pytest.approx(float(s[0] ** 2))


def test_a_network_keeps_its_bound_and_is_not_convex(seed):
    found = thm2_3.descent_network(thm2_3.NonConvex(iterations=3, seed=seed))
    assert found["loss"].shape == found["bound"].shape == (5, 4)
    assert bool((found["loss"] <= found["bound"] * (1 + 1e-12)).all())


def test_one_loss_above_its_bound_is_enough():
    bound = torch.ones(5, 4)
    loss = 0.5 * bound
    readings = [made("descent_quadratic", {"loss": loss, "bound": bound}) for _ in range(3)]
    assert judged(thm2_3, "least_squares", readings).verdict == "reproduced"
    loss = loss.clone()
    loss[2, 3] = 1.001
    worse = [*readings, made("descent_quadratic", {"loss": loss, "bound": bound})]
    assert judged(thm2_3, "least_squares", worse).verdict == "differs"


def test_batch_norm_behind_an_affine_map(seed):
    """Along a null direction of the covariance the gain is |A|/sqrt(ε) (erratum E9); else at most 1/sqrt(λ_min)."""
    found = thm4_5.batch_norm_gains(thm4_5.Layers(seed=seed))
    assert_close(found["few"], torch.tensor([3.16227766, 31.6227766, 316.227766, 3162.27766]), relative=1e-8)
    assert bool((found["normalised"] <= 0.1**-0.5).all())
    assert float(found["many"].max()) < 10


def test_second_derivatives_of_an_entry(seed):
    """Of erratum E4, and by the closed form of the theory for other entries."""
    found = thm4_5.entry_curvatures(thm4_5.Layers(epsilon=1.0, seed=seed))
    assert_close(found["corrected"], found["differentiated"], relative=1e-12)
    assert_close(found["printed"], found["corrected"] * (1 + found["entry"].square()), relative=1e-12)


def test_slopes_of_a_function_that_is_only_continuously_differentiable():
    found = thm4_5.slope_quotients(thm4_5.Layers())
    assert_close(found["root"], torch.tensor([10.0, 100.0, 1000.0]))
    assert_close(found["softplus"], torch.full((3,), 0.25), relative=1e-5)  # the quotient is φ'' up to the gap squared


def test_hessians_stay_below_the_certificate_only_with_normalisation(seed):
    found = thm4_5.smooth_hessians(thm4_5.Curvatures(points=1, ascent=2, seed=seed))
    assert float(found["normalised"].max()) < float(found["certified"])
    assert float(found["roughest"]) < float(found["certified"])
    assert float(found["plain"][-1]) > float(found["certified"])


def test_a_hessian_above_its_certificate_differs():
    arrays = {"normalised": torch.tensor([1.0, 2.0]), "roughest": torch.tensor(3.0), "certified": torch.tensor(4.0)}
    assert judged(thm4_5, "bounded", [made("smooth_hessians", arrays)]).verdict == "reproduced"
    arrays["certified"] = torch.tensor(2.5)
    assert judged(thm4_5, "bounded", [made("smooth_hessians", arrays)]).verdict == "differs"


def test_regular_points_by_dense_matrices(seed):
    """λ(DF) from automatic differentiation of the whole network, and its order with the bounds."""
    settings = thm4_7.Points(points=1, seed=seed)
    found = thm4_7.regular_points(settings)
    generator = settings.stream()
    data, system = torch.randn(6, 4, generator=generator), RandomResidualNetwork().system()
    for place, scale in enumerate(SCALES):
        theta = scale * torch.randn(system.parameters, generator=generator)
        DF = torch.func.jacrev(lambda weights: system(weights, data))(theta).flatten(0, 1)
        # singular values are right to roundings of the largest: λ loses digits as it falls below it
        smallest = float(torch.linalg.svdvals(DF)[-1])
        assert math.sqrt(float(found["true"][place, 0])) == pytest.approx(smallest, rel=1e-8)
    assert bool((found["from_layers"] <= found["true"] * (1 + 1e-6)).all())
    assert bool((found["from_skips"] <= found["true"] * (1 + 1e-6)).all())
    assert float(found["slack_of_skips"].min()) > -1e-12


def test_lemma_b5_fails_for_a_convolution_only(seed):
    drawn = [thm4_7.first_layers(thm4_7.FirstLayer(replicate=replicate, seed=seed)) for replicate in range(6)]
    assert all(float(found["convolution"]) < 1 <= float(found["entry_normalised"]) for found in drawn)
    readings = [made("first_layers", found) for found in drawn]
    assert judged(thm4_7, "first_layer", readings).verdict == "corrected"


def test_a_bound_that_is_zero_proves_nothing():
    arrays = {"true": torch.ones(7, 2), "from_skips": torch.full((7, 2), 0.5)}
    assert judged(thm4_7, "positive", [made("regular_points", arrays)]).verdict == "reproduced"
    arrays["from_skips"][3, 1] = 0
    assert judged(thm4_7, "positive", [made("regular_points", arrays)]).verdict == "differs"
