"""Each hypothesis, planted and found: the network of the theory holds all of them, each change breaks its own."""

import math
from dataclasses import replace

import pytest
import torch

from tests.jacobians.systems.reference import (
    LABELS_A,
    cosines,
    data_a,
    network_a,
    network_r,
    residual_network,
    sines,
    start_a,
)

BETA = 135.78673583676


@pytest.fixture
def case():
    """REF-A with cross-entropy and a certified step."""
    return case_of(network_a())


def case_of(system, cost=None, data=None, **more):
    from skiplens.jacobians.hypotheses.descriptions import Case, CostFacts, DataFacts, describe
    from skiplens.jacobians.systems.costs import CrossEntropy

    facts = DataFacts.of_matrix(data_a() if data is None else data)
    cost = CostFacts.of_cost(CrossEntropy(LABELS_A, 3)) if cost is None else cost
    options = {"step": 1.9 / BETA, "first_weights": start_a()[:30]} | more
    return Case(describe(system), facts, cost, **options)


def verdicts(case):
    from skiplens.jacobians.hypotheses.conditions import check

    return {entry.label: entry for entry in check(case)}


def not_holding(case):
    """Labels that do not hold, without G1 (which repeats them) and S6, G6 (which follow from them)."""
    return {label for label, entry in verdicts(case).items() if not entry.holds} - {"G1", "S6", "G6"}


def test_the_network_of_the_theorem_meets_every_hypothesis(case):
    from skiplens.jacobians.hypotheses.conditions import what_follows
    from skiplens.jacobians.hypotheses.descriptions import HYPOTHESES

    found = verdicts(case)
    assert list(found) == list(HYPOTHESES)
    assert all(entry.holds for entry in found.values())
    assert all(entry.change == "" and entry.where == () for entry in found.values())
    assert found["S6"].number == pytest.approx(BETA, rel=1e-12)
    assert found["R3"].number == pytest.approx(0.9)
    assert found["G4"].number == pytest.approx(0.1)
    assert found["R4"].number == pytest.approx(1.0439322055676, rel=1e-12)
    assert found["R5"].number == pytest.approx(0.17076356006421, rel=1e-12)
    assert found["G6"].number == pytest.approx(2 / BETA, rel=1e-12)
    assert "false" in what_follows(case) and "floor" in what_follows(case)


def test_a_kink_is_named():
    found = verdicts(case_of(network_a(nonlinearity="relu")))
    assert found["S1"].verdict == "fails"
    assert found["S1"].where == ("block2.phi", "block3.phi")
    assert found["S1"].number == 2
    assert "relu has a kink" in found["S1"].reason
    assert "tanh" in found["S1"].change
    assert found["S5"].where == ("block2", "block3")
    assert not_holding(case_of(network_a(nonlinearity="relu"))) == {"S1", "S5"}


def test_a_steep_nonlinearity_is_named():
    case = case_of(network_a(nonlinearity="gelu"))
    assert not_holding(case) == {"R3", "G3", "G4"}
    assert verdicts(case)["R3"].number == pytest.approx(0.9 * 1.128904145, rel=1e-9)
    assert verdicts(case)["G3"].number == pytest.approx(1.128904145, rel=1e-9)


def test_too_many_samples_are_named():
    from skiplens.jacobians.hypotheses.descriptions import CostFacts
    from skiplens.jacobians.systems.costs import CrossEntropy

    cost = CostFacts.of_cost(CrossEntropy(torch.zeros(7, dtype=torch.int64), 3))
    case = case_of(network_a(), cost, sines(6, 7))
    assert not_holding(case) == {"R4"}
    assert "7 samples, 6 features" in verdicts(case)["R4"].reason
    assert "at most 6 samples" in verdicts(case)["R4"].change


def test_dependent_samples_are_named():
    case = case_of(network_a(), data=torch.cat([data_a()[:, :3], data_a()[:, :1] + data_a()[:, 1:2]], dim=1))
    assert not_holding(case) == {"R4"}
    assert "linearly dependent" in verdicts(case)["R4"].reason


def test_growing_widths_are_named():
    from skiplens.jacobians.hypotheses.descriptions import CostFacts
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.costs import CrossEntropy
    from skiplens.jacobians.systems.parameterisation import EntryNormalised

    system = residual_network(Affine(EntryNormalised(3, 6), name="first"), widths=(3, 4))
    case = case_of(system, CostFacts.of_cost(CrossEntropy(LABELS_A, 4)), first_weights=start_a()[:18])
    assert not_holding(case) == {"R1"}
    assert verdicts(case)["R1"].number == pytest.approx(4 / 3)


def changed_block(case, **changes):
    """The case with its last block changed."""
    return replace(case, layers=(*case.layers[:-1], replace(case.layers[-1], **changes)))


def skip(**changes):
    from skiplens.jacobians.hypotheses.descriptions import Skip

    return replace(Skip("pooling", 4, 3, smallest=1.0, largest=1.0), **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"smallest": 0.0}, "singular values from 0 to 1"),
        ({"largest": 1.5}, "singular values from 1 to 1.5"),
        ({"is_linear": False}, "is not linear"),
        ({"parameters": 12}, "trained parameters"),
        ({"smallest": None, "deviation": 0.4}, "differs from the identity by 0.4"),
    ],
)
def test_a_bad_skip_is_named(case, changes, reason):
    bad = changed_block(case, skip=skip(**changes))
    assert verdicts(bad)["R2"].verdict == "fails"
    assert verdicts(bad)["R2"].where == ("block3",)
    assert reason in verdicts(bad)["R2"].reason
    assert not_holding(bad) == {"R2"}


def test_an_unknown_skip_leaves_it_open(case):
    unknown = changed_block(case, skip=skip(smallest=None, largest=None))
    assert verdicts(unknown)["R2"].verdict == "cannot be decided"
    assert verdicts(unknown)["S6"].verdict == "cannot be decided"


def test_a_large_skip_is_judged_by_a_probe(case):
    assert verdicts(changed_block(case, skip=skip(smallest=None, deviation=0.0)))["R2"].holds


def test_a_plain_branch_is_named(case):
    from skiplens.jacobians import systems as ps

    *inner, outer = case.layers[-1].branch
    plain = changed_block(case, branch=(*inner, replace(outer, parameterisation=ps.Free(3, 4))))
    assert not_holding(plain) == {"S2", "S5", "R3", "G4"}
    assert verdicts(plain)["S2"].where == ("block3.outer",)
    assert math.isinf(verdicts(plain)["R3"].number)
    assert verdicts(plain)["S6"].verdict == "fails"
    assert verdicts(plain)["S6"].where == ("block3.outer",)
    biased = changed_block(case, branch=(*inner, replace(outer, has_bias=True)))
    assert verdicts(biased)["S2"].where == ("block3.outer",)
    assert "free biases" in verdicts(biased)["S2"].reason


def test_a_convolution_in_front_is_named():
    from skiplens.jacobians import systems as ps

    kernel = ps.Convolution(ps.EntryNormalised(1, 2), 1, (2, 3), (1, 2))
    system = residual_network(ps.Affine(kernel, name="conv"), widths=(4, 3))
    case = case_of(system, first_weights=torch.ones(2))
    assert not_holding(case) == {"R5", "G2"}
    assert verdicts(case)["R5"].where == ("conv",)
    assert verdicts(case)["R5"].number == 0


def test_measured_slopes_stand_beside_the_bound_and_decide_what_is_not_known(case):
    from skiplens.jacobians.hypotheses.descriptions import SampledGain, Unrecognised

    gains = {"block2": SampledGain(0.31817220799685), "block3": SampledGain(0.3044745357944)}
    measured = verdicts(replace(case, sampled_gains=gains))["R3"]
    assert (measured.verdict, measured.number, measured.sampled) == ("holds", pytest.approx(0.9), 0.31817220799685)
    assert verdicts(case)["R3"].sampled is None
    strange = changed_block(case, branch=(Unrecognised("block3.attention", "attention", 4, 3),))
    steep = replace(strange, sampled_gains={"block3": SampledGain(1.25)})
    assert (verdicts(steep)["R3"].verdict, verdicts(steep)["R3"].where) == ("fails", ("block3",))
    assert verdicts(steep)["G4"].verdict == "fails"
    for gain in (SampledGain(0.8), SampledGain(1.25, is_lower_bound=False)):
        assert verdicts(replace(strange, sampled_gains={"block3": gain}))["R3"].verdict == "cannot be decided"


def test_a_map_with_shared_numbers_is_named(case):
    from skiplens.jacobians.hypotheses.descriptions import FreeMap
    from skiplens.jacobians.systems.norms import BatchNorm

    *inner, _ = case.layers[-1].branch
    plain = changed_block(case, branch=(*inner, FreeMap("conv", 4, 3, 6, 2)))
    assert verdicts(plain)["S2"].where == verdicts(plain)["S6"].where == ("conv",)
    assert math.isinf(verdicts(plain)["R3"].number)
    first = replace(case, layers=(FreeMap("conv", 6, 5, 6, 2), *case.layers[1:]))
    assert (verdicts(first)["R5"].verdict, verdicts(first)["R5"].number) == ("fails", 0)
    normed = changed_block(case, branch=(FreeMap("conv", 4, 3, 6, 2), BatchNorm(3, 0.1, name="bn")))
    assert verdicts(normed)["S3"].verdict == "cannot be decided"
    wide = changed_block(case, branch=(FreeMap("conv", 4, 3, 6, 4), BatchNorm(3, 0.1, name="bn")))
    assert (verdicts(wide)["S3"].verdict, verdicts(wide)["S3"].where) == ("fails", ("bn",))


def test_a_head_without_skip_is_named(case):
    from skiplens.jacobians import systems as ps

    head = replace(case, layers=(*case.layers, ps.Affine(ps.WeightNormalised(3, 3), name="head")))
    assert not_holding(head) == {"R6"}
    assert verdicts(head)["R6"].where == ("head",)


def test_costs_that_are_not_covered_are_named(case):
    from skiplens.jacobians.hypotheses.descriptions import CostFacts

    quartic = replace(case, cost=CostFacts("quartic cost", True, True, False))
    assert verdicts(quartic)["G5"].verdict == "fails"
    assert verdicts(quartic)["S4"].holds
    absolute = replace(case, cost=CostFacts("absolute error", True, False, False))
    assert verdicts(absolute)["S4"].verdict == "fails"
    unknown = replace(case, cost=CostFacts("my loss"))
    assert {label for label, entry in verdicts(unknown).items() if entry.verdict == "cannot be decided"} == {
        "S4", "S6", "G1", "G5", "G6",
    }  # fmt: skip


def test_a_long_step_is_named(case):
    found = verdicts(replace(case, step=3 / BETA))["G6"]
    assert found.verdict == "fails"
    assert "Use a step below" in found.change
    assert verdicts(replace(case, step=None))["G6"].verdict == "cannot be decided"


def test_an_unrecognised_part_leaves_open_what_it_touches(case):
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    strange = changed_block(case, branch=(Unrecognised("block3.attention", "attention", 4, 3),))
    found = verdicts(strange)
    open_ones = {label for label, entry in found.items() if entry.verdict == "cannot be decided"}
    assert open_ones == {"S1", "S2", "S5", "S6", "R3", "G1", "G3", "G4", "G6"}
    assert found["S1"].where == ("block3.attention (attention)",)
    assert found["R3"].number is found["G4"].number is None


def test_parallel_branches_add_up(case):
    from skiplens.jacobians.hypotheses.descriptions import Kinked, ParallelBranches

    branch = case.layers[-1].branch
    doubled = changed_block(case, branch=(ParallelBranches("two", (branch, branch), 4, 3),))
    assert verdicts(doubled)["R3"].number == pytest.approx(1.8)
    assert not_holding(doubled) == {"R3", "G4"}
    assert verdicts(doubled)["S6"].number > verdicts(case)["S6"].number
    kinked = ParallelBranches("two", (branch, (Kinked("pool", "max pooling", 4, 3),)), 4, 3)
    assert verdicts(changed_block(case, branch=(kinked,)))["S1"].where == ("pool",)
    assert verdicts(changed_block(case, branch=(kinked,)))["R3"].verdict == "cannot be decided"


def test_batch_norms_are_judged_by_what_comes_before():
    from skiplens.jacobians import systems as ps

    def verdict(first, epsilon=0.1, data=None):
        system = ps.Composition((first, ps.BatchNorm(3, epsilon, name="bn")))
        case = case_of(system, data=data, first_weights=torch.ones(first.parameters))
        return verdicts(case)["S3"]

    normalised, plain = ps.Affine(ps.EntryNormalised(3, 6)), ps.Affine(ps.Free(3, 6))
    assert verdict(normalised).holds
    assert verdict(normalised, 0.0).verdict == "fails"
    assert "its epsilon is 0" in verdict(normalised, 0.0).reason
    assert verdict(normalised, 0.0).change == "Give it an epsilon above 0."
    assert "singular covariance" in verdict(plain).reason
    assert verdict(plain).verdict == "fails"  # 4 samples of 6 features: the covariance is singular (erratum E9)
    assert verdict(plain).where == ("bn",)
    assert verdict(plain, data=sines(6, 9)).holds
    assert verdict(plain, data=sines(6, 9) * torch.tensor([[1.0], [1], [1], [1], [1], [0]])).verdict == "fails"


def test_a_layer_norm_without_epsilon_is_named(case):
    from skiplens.jacobians import systems as ps

    branch = case.layers[-1].branch
    smooth = changed_block(case, branch=(*branch, ps.SampleNorm(3, epsilon=0.9, name="ln")))
    assert not_holding(smooth) == set()
    assert verdicts(smooth)["R3"].number == pytest.approx(0.9 / math.sqrt(0.9))
    sharp = changed_block(case, branch=(*branch, ps.SampleNorm(3, epsilon=0.0, name="ln")))
    assert not_holding(sharp) == {"S3", "S5", "R3", "G4"}
    assert verdicts(sharp)["S3"].where == verdicts(sharp)["S6"].where == ("ln",)


def test_a_batch_norm_behind_an_inner_plain_map_is_open_with_many_samples():
    from skiplens.jacobians import systems as ps

    layers = (ps.Affine(ps.EntryNormalised(3, 6)), ps.Affine(ps.Free(2, 3)), ps.BatchNorm(2, 0.1, name="bn"))
    case = case_of(ps.Composition(layers), first_weights=torch.ones(18))
    assert verdicts(case)["S3"].verdict == "cannot be decided"
    few = case_of(ps.Composition(layers), data=data_a()[:, :3], first_weights=torch.ones(18))
    assert verdicts(few)["S3"].verdict == "fails"


def test_covariance_facts():
    from skiplens.jacobians.hypotheses.descriptions import DataFacts

    X = sines(3, 9)
    expected = torch.linalg.eigvalsh(torch.cov(X, correction=0))[0]
    assert DataFacts.of_matrix(X).covariance == pytest.approx(float(expected))
    assert DataFacts.of_matrix(sines(6, 4)).covariance == 0


def test_scale_and_shift_and_max_pooling_are_named(case):
    from skiplens.jacobians import systems as ps
    from skiplens.jacobians.hypotheses.descriptions import Kinked, LinearMap

    branch = (ps.BatchNorm(4, name="bn"), ps.ScaleShift(4, name="bn.scale"), Kinked("pool", "max pooling", 4, 3, 1.0))
    found = verdicts(changed_block(case, branch=branch))
    assert found["S1"].where == ("pool",)
    assert found["S2"].where == ("bn.scale",)
    assert "scale and shift" in found["S2"].reason
    pooled = changed_block(case, branch=(*case.layers[-1].branch[:2], LinearMap("average", 4, 3, 0.5)))
    assert verdicts(pooled)["R3"].number == pytest.approx(0.9)
    assert not_holding(pooled) == set()
    unknown = changed_block(case, branch=(LinearMap("average", 4, 3, None),))
    assert verdicts(unknown)["R3"].verdict == "cannot be decided"


def test_the_repaired_network_is_certified():
    from skiplens.jacobians.hypotheses.conditions import what_follows
    from skiplens.jacobians.hypotheses.descriptions import CostFacts
    from skiplens.jacobians.systems.costs import SquareCost

    case = case_of(network_r(), step=0.09)
    assert not_holding(case) == {"G2"}
    assert what_follows(case).startswith("Certified: this is the repaired network")
    assert verdicts(case)["R3"].number == pytest.approx(0.5)
    square = case_of(network_r(), CostFacts.of_cost(SquareCost(cosines(3, 4))), step=0.01)
    assert verdicts(square)["S6"].verdict == "fails"
    limited = replace(square, sublevel=6.636807142879)
    assert verdicts(limited)["S6"].number == pytest.approx(50.0553310067958, rel=1e-11)
    assert what_follows(limited).startswith("Certified")


def test_the_counterexample_meets_every_hypothesis():
    from skiplens.jacobians.hypotheses.descriptions import CostFacts
    from skiplens.papers.macdonald2023_regularity.counterexample import counterexample_loss

    loss = counterexample_loss()
    case = case_of(
        loss.system, CostFacts.of_cost(loss.cost), loss.data, step=1.9 / 18.7377739919381, first_weights=torch.ones(1)
    )
    assert not_holding(case) == set()
    assert verdicts(case)["G1"].holds and verdicts(case)["G6"].holds


def test_conclusions_name_what_fails(case):
    from skiplens.jacobians.hypotheses.conditions import conclusion, what_follows
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    kink = case_of(network_a(nonlinearity="relu"))
    said = {label: check.hypothesis.statement for label, check in verdicts(case).items()}
    assert what_follows(kink) == f"Nothing is certified: “{said['S1']}” and 2 more fail."
    only_one = [replace(verdicts(case)["R2"], verdict="fails")]
    assert conclusion(case, only_one) == f"Nothing is certified: “{said['R2']}” fails."
    strange = changed_block(case, branch=(Unrecognised("x", "?", 4, 3),))
    assert "cannot be decided" in what_follows(strange)
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.layer import Composition
    from skiplens.jacobians.systems.parameterisation import WeightNormalised

    rows = Composition((Affine(WeightNormalised(5, 6), name="first"), *network_a().layers[1:]))
    assert "every critical point of the loss is a global minimum" in what_follows(case_of(rows))


def test_networks_and_data_without_content_are_refused(case):
    from skiplens.base.errors import InvalidInputError
    from skiplens.jacobians.hypotheses.descriptions import DataFacts, LinearMap

    with pytest.raises(InvalidInputError, match="no layers to check"):
        replace(case, layers=())
    with pytest.raises(InvalidInputError, match="empty has no outputs"):
        replace(case, layers=(LinearMap("empty", 3, 0, 1.0),))
    with pytest.raises(InvalidInputError, match="NaN or infinite entries"):
        DataFacts.of_matrix(torch.full((3, 2), math.inf))
    with pytest.raises(InvalidInputError, match="0 samples"):
        DataFacts.of_matrix(torch.zeros(3, 0))
