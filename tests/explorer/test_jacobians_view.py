"""The Jacobians view against NumPy, determinants, autograd and the theorem's own conditions; its words and code."""

import math

import numpy as np
import pytest
import torch

from tests.explorer.drawings import series_of, values_of
from tests.tolerances import assert_close


def view():
    from skiplens.explorer.views.jacobians import JacobiansView

    return JacobiansView()


def values(**changed):
    return values_of(view(), **changed)


def drawn(**changed):
    return view().draw(values(**changed))


def layer(**options):
    from skiplens.explorer.views.jacobians import RandomLayer

    return RandomLayer(**options)


def test_singular_values_are_those_of_the_matrix_and_of_the_matrix_with_a_skip():
    chosen = layer(scale=0.8, width=30, seed=1)
    for skip in (False, True):
        expected = np.linalg.svd(chosen.weights.numpy() + skip * np.eye(30), compute_uv=False)
        assert_close(chosen.singular_values[skip], torch.from_numpy(expected))


def test_weights_have_the_variance_they_say():
    entries = layer(scale=0.7, width=300).weights
    squares = entries.square() * 300 / 0.49
    assert abs(squares.mean().item() - 1) < 4 * math.sqrt(2 / 300**2)  # squares of normal numbers have variance 2


@pytest.mark.parametrize("scale", [0.05, 0.3, 0.999, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("has_skip", [False, True])
def test_the_typical_factor_is_the_mean_logarithm_of_determinants(scale, has_skip):
    from skiplens.explorer.views.jacobians import log_typical

    width, draws = 400, 6
    logs = []
    for seed in range(draws):
        matrix = layer(scale=scale, width=width, seed=seed).weights.numpy() + has_skip * np.eye(width)
        logs.append(np.linalg.slogdet(matrix).logabsdet / width)
    # ln |det| of a random matrix fluctuates by about sqrt(ln n), and its mean is off by about ln n: both over n
    assert np.mean(logs) == pytest.approx(log_typical(scale, has_skip), abs=4 * math.log(width) / width)


def test_the_typical_factor_is_the_mean_of_the_limiting_law():
    from skiplens.explorer.views.jacobians import log_typical

    for scale in (0.2, 0.577, 0.9):
        assert layer(scale=scale).law(True).mean_of(torch.log) == pytest.approx(log_typical(scale, True), abs=1e-9)


def test_over_layers_typical_factors_multiply():
    from skiplens.explorer.views.jacobians import through

    product = np.eye(200)
    for seed in range(3):
        product = (np.eye(200) + layer(scale=1.5, width=200, seed=seed).weights.numpy()) @ product
    expected = 3 * math.log(through(1.5, True, 1))
    assert np.log(np.linalg.svd(product, compute_uv=False)).mean() == pytest.approx(
        expected, abs=12 * math.log(200) / 200
    )
    assert through(0.5, False, 7) == pytest.approx((0.5 * math.exp(-0.5)) ** 7, rel=1e-12)


def test_the_histogram_has_area_one_and_counts_right():
    from skiplens.explorer.views.jacobians import histogram

    steps, heights = histogram(torch.tensor([0.1, 0.1, 0.9, 1.9]), 2.0)
    widths = steps[1::2] - steps[::2]
    assert float((widths * heights[::2]).sum()) == pytest.approx(1, rel=1e-12)
    assert heights[::2].tolist() == [2.0, 0, 0, 1, 0, 0, 0, 1]


def test_the_limit_has_the_edges_of_the_theory_s_table():
    rows = {(row["matrix"], row["at"]): row for row in drawn(scale=3**-0.5).rows}
    limit = rows["I + W", "infinite width"]
    assert limit["smallest"] == pytest.approx(0.288675134594813, rel=1e-12)
    assert limit["largest"] == pytest.approx(1.88561808316413, rel=1e-12)
    assert limit["mean"] == pytest.approx(13 / 12, rel=1e-10)
    assert rows["W", "infinite width"]["geometric mean"] == pytest.approx(math.exp(-1.04930614433406), rel=1e-12)
    assert rows["W", "width 200"]["mean"] == pytest.approx(0.490070129263815, abs=0.005)  # ten deviations at width 200


def test_the_range_against_scale_marks_where_the_skip_loses_its_floor():
    band = series_of(drawn(), "range_against_scale", "I + W, range")
    # the scale 1 is off by a rounding, and the edge with it
    assert all((low < 1e-9) == (scale > 1 - 1e-9) for scale, low in zip(band.x, band.low, strict=True))
    assert_close(np.array(series_of(drawn(), "range_against_scale", "W, range").high), 2 * np.array(band.x))


def blocks(**options):
    from skiplens.explorer.views.jacobians import RandomBlocks

    return RandomBlocks(**options)


def test_shortcuts_are_added_to_the_same_branch():
    chosen = blocks(scale=0.5, width=40, seed=2)
    chain, projected, pooled = chosen.shrinking().values()
    pool = torch.kron(torch.eye(10), torch.full((1, 4), 0.5))
    assert_close(pooled - projected, pool)
    assert_close(pool @ pool.T, torch.eye(10))
    assert chain.shape == (10, 40)
    variance = (projected - chain).square().mean().item()
    assert variance == pytest.approx(0.25 / 40, abs=4 * 0.25 / 40 * math.sqrt(2 / 400))
    without, identity = chosen.keeping_width().values()
    assert_close(identity - without, torch.eye(40))
    assert torch.linalg.matrix_rank(without) < 40


def test_features_left_over_are_dropped():
    from skiplens.explorer.views.jacobians import average_pool

    assert_close(average_pool(2, 11).sum(0), torch.tensor([0.5] * 8 + [0.0] * 3))


def test_blocks_are_drawn_in_order():
    drawing = drawn(topic="block", width=40)
    curve = series_of(drawing, "shrinking_blocks", "residual with average pool")
    expected = np.linalg.svd(blocks(width=40).shrinking()["residual with average pool"].numpy(), compute_uv=False)
    assert_close(np.array(curve.y), np.sort(expected))
    assert "smallest is 0 in the chain" in drawing.says


EVERYTHING = {f"{letter}{number}" for letter in "SRG" for number in range(1, 7)}


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({}, set()),
        ({"cost": "cross_entropy"}, set()),
        ({"nonlinearity": "softplus"}, set()),
        ({"widths": "shrinking", "blocks": 8}, set()),
        ({"first_layer": "plain"}, {"S2", "S6", "G2"}),
        ({"first_layer": "plain", "opening": True}, {"G2"}),
        ({"first_layer": "convolution"}, {"S2", "S6", "R5", "G2"}),
        ({"branch_weights": "free"}, {"S2", "S5", "S6", "R3", "G4"}),
        ({"nonlinearity": "relu"}, {"S1", "S5", "S6"}),
        ({"nonlinearity": "gelu"}, {"G3"}),
        ({"nonlinearity": "gelu", "margin": 0.1}, {"G3", "R3", "G4"}),
        ({"shortcut": "padded"}, {"R2"}),
        ({"shortcut": "projection"}, {"R2", "S6"}),
        ({"shortcut": "none"}, {"R6", "G4"}),
        ({"widths": "growing"}, {"R1"}),
        ({"batch_norm": "branch"}, {"R3", "G4"}),
        ({"batch_norm": "between"}, {"R6"}),
        ({"margin": 0.0}, {"R3", "G4"}),
        ({"samples": 17}, {"R4"}),
        ({"cost": "absolute"}, {"S4", "S6", "G5"}),
        ({"step": 2.5}, {"G6"}),
    ],
)
def test_each_option_breaks_its_hypotheses(changed, broken):
    drawing = drawn(topic="theorem", **changed)
    states = {check.name[-3:-1]: check.state for check in drawing.checks}
    assert set(states) == EVERYTHING
    follow = {"G1"} if broken & {label for label in EVERYTHING if label[0] in "SR"} else set()
    follow |= {"G6"} if "S6" in broken else set()  # without a smoothness no step is certified
    assert {label for label, state in states.items() if state != "holds"} == broken | follow


def test_a_failing_hypothesis_says_what_to_change():
    check = next(one for one in drawn(topic="theorem", nonlinearity="relu").checks if one.name.endswith("(S1)"))
    assert check.state == "fails"
    assert check.why == "Relu has a kink: its derivative jumps. Use tanh (or softplus) in place of relu."


def test_what_cannot_be_decided_is_unknown():
    check = next(one for one in drawn(topic="theorem", shortcut="projection").checks if one.name.endswith("(S6)"))
    assert check.state == "unknown"


def test_the_words_of_the_theorem_follow_the_options():
    assert "All 18 hypotheses hold" in drawn(topic="theorem").says
    assert "the printed theorem is false" in drawn(topic="theorem").says
    padded = drawn(topic="theorem", shortcut="padded")
    statement = next(one.name for one in padded.checks if one.name.endswith("(R2)")).removesuffix(" (R2)")
    assert f"Nothing is certified: “{statement}” fails." in padded.says, "in words, not by its number"
    assert "repaired network" in drawn(topic="theorem", first_layer="plain", opening=True).says
    assert "step is too large" in drawn(topic="theorem", step=5.0).says


def test_the_certified_slope_fades_with_the_margin_and_the_depth():
    curve = series_of(drawn(topic="theorem", margin=0.4), "certified_slope", "")
    assert_close(np.array(curve.y), 0.4 ** (2 * np.array(curve.x)))


def test_pictures_of_what_is_not_certified_are_left_out():
    assert [each.name for each in drawn(topic="theorem", branch_weights="free").figures] == ["verdicts"]


def test_the_certified_step_keeps_gradient_descent_falling():
    """The bound is for all parameters: the largest Hessian found at random ones stays below it."""
    from skiplens.explorer.views.jacobians_theorem import FEATURES, TheoremOptions, case_of
    from skiplens.jacobians.hypotheses.descriptions import describe
    from skiplens.jacobians.systems.elementwise import Residual, SkipMap
    from skiplens.jacobians.systems.layer import Composition

    options = TheoremOptions(blocks=1, samples=4)
    case = case_of(options)
    first, block = case.layers
    system = Composition((first, Residual(SkipMap.truncation(FEATURES, FEATURES), Composition(block.branch))))
    assert [type(part) for part in describe(system)] == [type(part) for part in case.layers]
    data = torch.randn(FEATURES, 4, generator=torch.Generator().manual_seed(0))
    data *= case.data.largest / torch.linalg.matrix_norm(data, 2)  # as large as the data of the case
    weights = 0.5 * torch.randn(system.parameters, generator=torch.Generator().manual_seed(1))
    direction = torch.randn_like(weights)
    for _ in range(5):
        direction = direction / direction.norm()
        direction = torch.autograd.functional.hvp(lambda w: case.cost.cost(system(w, data)), weights, direction)[1]
    assert 0 < direction.norm().item() < case.smoothness


@pytest.mark.parametrize("topic", ["layer", "block", "theorem"])
def test_the_code_makes_the_same_numbers(topic):
    drawing = drawn(topic=topic, width=24, scale=0.61, seed=7, nonlinearity="relu", margin=0.35)
    found: dict = {}
    exec(drawing.code, found)
    if topic == "layer":
        assert_close(found["result"], layer(scale=0.61, width=24, seed=7).singular_values[True])
        assert found["smallest"] == drawing.rows[3]["smallest"]
    elif topic == "block":
        curve = series_of(drawing, "shrinking_blocks", "residual (projection)")
        assert_close(found["result"]["residual (projection)"].flip(0), torch.tensor(curve.y))
    else:
        states = {check.name[-3:-1]: check.state for check in drawing.checks}
        assert {
            label: verdict.replace("cannot be decided", "unknown") for label, verdict in found["result"].items()
        } == states


def test_the_words_of_a_layer_follow_its_scale():
    assert "With a skip the factor is 1 at any depth" in drawn(scale=0.5).says
    assert "too large for a skip to help" in drawn(scale=1.5).says
    assert "after 40 layers" in drawn(depth=40).says


def test_networks_are_measured_only_when_asked_for():
    assert view().measurement(values(mnist=True)) is None
    assert view().measurement(values(topic="block")) is None
    assert view().measurement(values(topic="block", mnist=True, seed=3)) == {"scale": 0.577, "seed": 3}


def jacobian_by_autograd(model, images):
    """Of the block at each image, with the batch norm inside the branch frozen at the statistics of the batch."""
    seen = {}
    block = model.block2.residual
    handles = [
        part.register_forward_hook(lambda module, args, out, name=name: seen.update({name: (args[0], out)}))
        for name, part in (("block", block), ("norm", block.branch[1]))
    ]
    model(images)
    [handle.remove() for handle in handles]
    entering, norm = seen["norm"][0], block.branch[1]
    mean, variance = entering.mean((0, 2, 3), keepdim=True), entering.var((0, 2, 3), unbiased=False, keepdim=True)

    def branch(o):
        hidden = block.branch[0](o[None])
        frozen = (hidden - mean) / (variance + norm.eps).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
        return block.branch[3](torch.relu(frozen))

    def whole(o):
        return (block.shortcut(o[None]) + branch(o)).flatten()

    jacobians = [torch.func.jacrev(whole)(o).flatten(1) for o in seen["block"][0]]
    return torch.cat([torch.linalg.svdvals(jacobian) for jacobian in jacobians]).sort(descending=True).values


def test_the_measured_block_is_that_of_autograd(monkeypatch):
    from skiplens.data.images import sample
    from skiplens.explorer.views import jacobians as mnist_blocks

    monkeypatch.setattr(mnist_blocks, "NETWORKS", {"residual with average pool": "mnist_residual_avgpool"})
    monkeypatch.setattr(mnist_blocks, "IMAGES", 2)
    seen = []
    measured = view().measure({"scale": 0.9, "seed": 1}, lambda label, done, total: seen.append((done, total)))
    model = mnist_blocks.scaled_network("mnist_residual_avgpool", 0.9, 1)
    expected = jacobian_by_autograd(model, sample().images[:2].float() / 255)
    found = measured["residual with average pool"]
    assert_close(found, expected.to(found.dtype), relative=1e-4)  # float32, two convolutions of hundreds of terms
    assert seen[-1] == (100, 100)
    curve = series_of(
        view().draw(values(topic="block", mnist=True), measured), "mnist_block", "residual with average pool"
    )
    assert_close(np.array(curve.y), found.flip(0).double().numpy())


def test_weights_of_the_measured_networks_have_the_asked_scale():
    from skiplens import zoo
    from skiplens.explorer.views.jacobians import scaled_network

    plain, scaled = zoo.build("mnist_chain", 4).float(), scaled_network("mnist_chain", 1.2, 4)
    assert_close(scaled.stem[0].weight.detach(), plain.stem[0].weight.detach() * 1.2 * 3**0.5)
    assert torch.equal(scaled.head[3].weight, plain.head[3].weight)
