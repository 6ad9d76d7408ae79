"""Theorem 5.1: the theory's tables of the counterexample and of one weight; how its claims are judged."""

import math

import pytest
import torch

from skiplens.papers.macdonald2023_regularity import counterexample, thm5_1
from tests.papers.macdonald2023_regularity.readings import judged, made
from tests.tolerances import assert_close


def at(found, *steps):
    """The losses after so many steps."""
    places = [int((found["step"] == step).nonzero()) for step in steps]
    return found["loss"][places]


def test_steps_are_spread_over_all_decades():
    steps = counterexample.some_steps(1000).tolist()
    assert steps == sorted(set(steps))
    assert {0, 1, 10, 100, 1000} <= set(steps)
    assert len(steps) < 70


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ("logistic", [0.27786977733563, 0.26317456965963, 0.22467062620197]),
        ("square", [0.25539371831646, 0.22563211475613, 0.13450785623329]),
    ],
)
def test_the_trapped_descent_is_that_of_the_table(cost, expected):
    found = counterexample.trapped_descent(counterexample.Trapped(cost=cost, spread=0.0, iterations=100))
    assert_close(at(found, 1, 10, 100), torch.tensor(expected), relative=1e-11)
    assert float(found["trap"]) == pytest.approx({"logistic": 0.180345014438980, "square": 0.026138994658664}[cost])


def test_one_weight_is_that_of_the_table():
    found = counterexample.one_layer_bounds(counterexample.OneLayer(iterations=10_000))
    expected = [0.336785574404, 0.245004193991, 0.214745470964, 0.205543896453, 0.202709100627]
    assert_close(at(found, 1, 10, 100, 1000, 10_000), torch.tensor(expected), relative=1e-11)
    assert float(found["sigma"][0]) == 1.5
    assert float(found["floor"]) == pytest.approx(math.log1p(math.exp(-1.5)))


def test_descents_of_the_paper_go_down_within_the_bound_of_the_weights(seed):
    found = thm5_1.printed_network_descent(thm5_1.Descents(iterations=5, seed=seed))
    assert found["loss"].shape == (3, 6)
    assert bool((found["loss"].diff(dim=1) < 0).all())
    assert bool((found["largest_weight"] <= found["weight_bound"]).all())


@pytest.mark.parametrize("cost", ["square", "cross_entropy"])
def test_the_repaired_network_keeps_its_promise(cost, seed):
    found = thm5_1.repaired_descent(thm5_1.Repaired(cost=cost, iterations=3, seed=seed))
    assert found["loss"].shape == found["bound"].shape == (3, 4)
    assert bool(found["kept"].all())
    assert bool((found["loss"] <= found["bound"] * (1 + 1e-12)).all())


def test_the_certificate_on_digits_is_far_above_the_hessian(seed):
    found = thm5_1.digit_certificates(thm5_1.DigitCertificate(iterations=1, seed=seed))
    assert 1e4 < float(found["certified"]) / float(found["measured"])
    assert float(found["smallest_singular_value"]) > 0.1
    assert found["loss"].shape == (3, 2)


def test_hypotheses_that_hold_and_fail():
    """The verdicts that the theory expects of these networks."""
    found = thm5_1.hypotheses_met(thm5_1.Hypotheses())
    failing = {label for label, values in found.items() if values[0] == 0}
    assert {"S1", "S2", "R2", "R3", "R5", "R6"} <= failing
    assert all(float(values[1]) == 1 for label, values in found.items() if label != "G6")
    assert float(found["G2"][2]) == 0, "the repaired network has a free first layer"


def trapped(loss: float, output: float, infimum: float = 0.0):
    arrays = {
        "loss": torch.tensor([1.0, loss]),
        "output": torch.tensor([1.0, output]),
        "infimum": torch.tensor(infimum),
    }
    return [
        made(
            "trapped_descent",
            {name: values + 1e-6 * place for name, values in arrays.items()},
            cost="square",
            start="trapped",
        )
        for place in range(5)
    ]


@pytest.mark.parametrize(
    ("loss", "output", "word"),
    [(0.05, 1.55, "corrected"), (0.001, 1.85, "reproduced"), (0.05, 1.4, "differs")],
)
def test_a_run_is_trapped_only_where_the_trap_has_closed(loss, output, word):
    assert judged(counterexample, "any_start_square", trapped(loss, output)).verdict == word


def one_layer(power: float, printed: float):
    step = torch.tensor([0, 1, 10, 100, 1000])
    moved = (step + 1.0) ** power
    arrays = {
        "step": step,
        "loss": torch.full((5,), 0.2),
        "valid": torch.full((5,), 0.6),
        "printed": torch.tensor([0.6, 0.5, 0.4, 0.3, printed]),
        "sigma": moved,
        "weight": 1 / moved ** (1 / 3),
        "floor": torch.tensor(0.195),
    }
    return [made("one_layer_bounds", arrays)]


def test_the_proof_is_corrected_where_its_bound_is_crossed():
    assert judged(counterexample, "printed_bound", one_layer(-0.75, 0.1)).verdict == "corrected"
    assert judged(counterexample, "printed_bound", one_layer(-0.75, 0.3)).verdict == "reproduced"
    assert judged(counterexample, "rate_exponent", one_layer(-0.75, 0.1)).verdict == "corrected"
    assert judged(counterexample, "rate_exponent", one_layer(-0.375, 0.1)).verdict == "reproduced"
    assert judged(counterexample, "weight_growth", one_layer(-0.75, 0.1)).verdict == "reproduced"
    assert judged(counterexample, "weight_growth", one_layer(-3.0, 0.1)).verdict == "differs"
    assert judged(counterexample, "infimum", one_layer(-0.75, 0.1)).verdict == "corrected"


def test_a_certificate_that_was_broken_differs():
    arrays = {"loss": torch.full((3, 4), 0.5), "bound": torch.ones(3, 4), "kept": torch.tensor([True, True, True])}
    assert judged(thm5_1, "repaired_square", [made("repaired_descent", arrays, cost="square")]).verdict == "reproduced"
    arrays["kept"] = torch.tensor([True, False, True])
    assert judged(thm5_1, "repaired_square", [made("repaired_descent", arrays, cost="square")]).verdict == "differs"
