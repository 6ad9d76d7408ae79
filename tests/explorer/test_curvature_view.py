"""The curvature view against autograd's Hessians and networks written out; its words and code."""

import itertools
import math

import numpy as np
import pytest
import torch

from skiplens.base.progress import silent
from tests.explorer.drawings import has_series, series_of, values_of
from tests.tolerances import STANDARD_ERRORS, assert_close


def view():
    from skiplens.explorer.views.curvature import CurvatureView

    return CurvatureView()


def values(**changed):
    return values_of(view(), **changed)


def setting(**changed):
    from skiplens.explorer.views.curvature import setting_of

    return setting_of(values(**changed))


def drawn(**changed):
    return view().draw(values(**changed))


def loss(weights, inputs, targets, branch_depth):
    """The square loss of the linear network, one sample a row, written as its diagram."""
    h = inputs
    step = max(1, branch_depth)
    for first in range(0, len(weights), step):
        branch = h
        for matrix in weights[first : first + step]:
            branch = branch @ matrix.T
        h = h + branch if branch_depth else branch
    return (h - targets).square().sum() / (2 * len(inputs))


def eigenvalues_by_autograd(weights, data, width, branch_depth):
    from skiplens.explorer.views.curvature import task

    inputs, targets = task(data, width)
    H = torch.autograd.functional.hessian(lambda W: loss(W, inputs, targets, branch_depth), weights)
    return torch.linalg.eigvalsh(H.reshape(weights.numel(), weights.numel()))


@pytest.mark.parametrize("branch_depth", [0, 1, 2, 3])
@pytest.mark.parametrize("initialisation", ["near_zero", "xavier", "orthogonal"])
def test_eigenvalues_where_training_starts_are_those_of_autograd(branch_depth, initialisation):
    from skiplens.explorer.views.curvature import initial_weights

    asked = {"branch_depth": branch_depth, "depth": 6, "initialisation": initialisation, "width": 2, "seed": 5}
    weights = initial_weights(initialisation, 6, 2, 5)
    expected = eigenvalues_by_autograd(weights, "digits", 2, branch_depth)
    shown = series_of(drawn(**asked), "eigenvalues", "where training starts")
    assert_close(torch.tensor(shown.y), expected)
    assert_close(np.array(shown.x), (np.arange(24) + 0.5) / 24)


@pytest.mark.parametrize("branch_depth", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("data", ["digits", "random", "rotation", "near"])
def test_eigenvalues_at_zero_are_those_of_autograd(branch_depth, data):
    depth = 2 * max(1, branch_depth)
    expected = eigenvalues_by_autograd(torch.zeros(depth, 3, 3), data, 3, branch_depth)
    shown = series_of(
        drawn(branch_depth=branch_depth, depth=depth, width=3, data=data), "eigenvalues", "at zero weights"
    )
    assert_close(torch.tensor(shown.y), expected)


def proxy(eigenvalues):
    sizes = np.sort(np.abs(eigenvalues.numpy()))
    return sizes[-1] / sizes[math.ceil(0.1 * len(sizes)) - 1]


def test_condition_numbers_against_depth():
    drawing = drawn(width=3, seed=2)
    flat, growing = (series_of(drawing, "condition_against_depth", f"over {n}, at zero") for n in (2, 1))
    at_start = series_of(drawing, "condition_against_depth", "over 3, start")
    eigenvalues = eigenvalues_by_autograd(torch.zeros(2, 3, 3), "digits", 3, 2)
    assert_close(np.array(flat.y), np.full(len(flat.y), proxy(eigenvalues)))
    assert list(growing.y) == sorted(growing.y) and growing.y[-1] > 10 * growing.y[1] > 10
    six = setting(branch_depth=3, depth=6, width=3, seed=2).eigenvalues_at_start
    assert dict(zip(at_start.x, at_start.y, strict=True))[6] == pytest.approx(proxy(six), rel=1e-12)


def test_three_matrices_have_no_line_at_zero():
    assert not has_series(drawn(), "condition_against_depth", "over 3, at zero")


def test_plain_networks_are_drawn_where_they_start():
    assert not has_series(drawn(), "condition_against_depth", "no shortcuts, start")
    plain = series_of(drawn(initialisation="xavier"), "condition_against_depth", "no shortcuts, start")
    assert np.nanmax(plain.y) > 1e5


@pytest.mark.parametrize("branch_depth", [1, 2, 3])
def test_the_way_down_is_the_loss_of_the_matrices_it_says(branch_depth):
    from skiplens.explorer.views.curvature import STEPS, losses, task

    chosen = setting(branch_depth=branch_depth, depth=6, width=3)
    inputs, targets = task("digits", 3)
    slope = (inputs - targets).T @ inputs / len(inputs)
    left, _, right = torch.linalg.svd(slope)
    u, v, z = left[:, 0], right[0], torch.eye(3)[1]
    ends = [z] * (branch_depth + 1)
    ends[0], ends[-1] = v, -u
    branch = [torch.outer(after, before) for before, after in itertools.pairwise(ends)]
    direction = torch.stack(branch * (6 // branch_depth)) / 6**0.5
    assert direction.norm().item() == pytest.approx(1, rel=1e-12)
    expected = torch.stack([loss(t * direction, inputs, targets, branch_depth) for t in STEPS])
    assert_close(losses(chosen), expected)


def test_the_plateau_is_flatter_the_more_matrices_a_shortcut_jumps_over():
    drawing = drawn(depth=12)
    falls = [series_of(drawing, "way_down", name).y for name in ("over 1 matrix", "over 2 matrices", "over 3 matrices")]
    drops = [curve[0] - curve[4] for curve in falls]  # a step of 0.2
    assert drops[0] > 3 * drops[1] > 9 * drops[2] > 0


def test_as_many_matrices_as_make_whole_units():
    chosen = setting(branch_depth=3, depth=16)
    assert (chosen.units, chosen.matrices, len(chosen.eigenvalues_at_start)) == (5, 15, 15 * 16)
    assert setting(branch_depth=4, depth=1).matrices == 4
    assert dict(drawn(branch_depth=3, depth=16).facts)["weight matrices"] == "15 in 5 units"
    assert dict(drawn(branch_depth=0, depth=16).facts)["weight matrices"] == "16, no shortcuts"


def test_the_words_follow_the_values():
    assert "The Hessian at zero vanishes for n = 3: gradient descent starts on a plateau." in drawn(branch_depth=3).says
    assert "who starts near zero" in drawn(branch_depth=3, initialisation="xavier").says
    assert "at every depth" in drawn(branch_depth=2).says and "saddle" in drawn(branch_depth=2).says
    assert "grows with depth" in drawn(branch_depth=1).says
    assert "16 matrices without shortcuts" in drawn(branch_depth=0).says
    assert "has the condition number" in drawn(branch_depth=0, depth=2).says


def test_condition_numbers_beyond_rounding_are_said_to_be_so():
    from skiplens.explorer.views.curvature import condition, condition_number
    from skiplens.papers.li2016_shortcuts.hessian.spectrum import listed_spectrum

    beyond = listed_spectrum(torch.tensor([1e-15, 1.0]))
    assert condition(beyond) == "above 10¹³"
    assert condition_number(beyond) == math.inf
    assert condition(listed_spectrum(torch.tensor([0.5, 1.0]))) == "2"
    assert condition(listed_spectrum(torch.zeros(3))) == "none: the Hessian is zero"


def test_weights_follow_the_law_of_their_start():
    from skiplens.explorer.views.curvature import initial_weights

    small, xavier, orthogonal = (initial_weights(start, 400, 4, 1) for start in ("near_zero", "xavier", "orthogonal"))
    assert_close(small, 0.01 * xavier)
    count = xavier.numel()
    assert abs(4 * xavier.square().mean().item() - 1) < STANDARD_ERRORS * math.sqrt(2 / count)
    assert_close(orthogonal @ orthogonal.mT, torch.eye(4).expand(400, 4, 4))


@pytest.mark.parametrize("data", ["digits", "random", "rotation", "near"])
def test_inputs_of_every_task_have_the_identity_as_second_moment(data):
    from skiplens.explorer.views.curvature import task

    inputs, targets = task(data, 4)
    assert_close(inputs.T @ inputs / len(inputs), torch.eye(4), relative=1e-10)  # whitening squares rounding
    assert targets.shape == inputs.shape


def test_a_rotation_keeps_lengths_and_digits_are_one_hot():
    from skiplens.explorer.views.curvature import task

    inputs, targets = task("rotation", 4)
    assert_close(targets.norm(dim=1), inputs.norm(dim=1))
    assert_close(task("digits", 3)[1].sum(1), torch.ones(len(task("digits", 3)[1])))


def test_an_unknown_task_is_refused():
    from skiplens.base.errors import InvalidInputError
    from skiplens.explorer.views.curvature import task

    with pytest.raises(InvalidInputError, match=r"no task 'cats'; choose one of digits, random, rotation, near"):
        task("cats", 3)


@pytest.mark.parametrize("branch_depth", [0, 2, 3])
def test_the_code_makes_the_same_numbers(branch_depth):
    drawing = drawn(branch_depth=branch_depth, depth=9, initialisation="xavier", data="near", width=3, seed=4)
    found: dict = {}
    exec(drawing.code, found)
    assert_close(found["result"], torch.tensor(series_of(drawing, "eigenvalues", "where training starts").y))
    if branch_depth:
        at_zero = series_of(drawing, "eigenvalues", "at zero weights").y
        assert found["zero"].largest == pytest.approx(max(at_zero), rel=1e-12)


def test_the_table_has_both_points():
    rows = drawn(branch_depth=2).rows
    assert [row["point"] for row in rows] == ["zero weights", "start"]
    assert rows[0]["share of negative eigenvalues"] == 0.5
    assert rows[0]["largest eigenvalue"] == -rows[0]["smallest eigenvalue"]


def test_every_shortcut_depth_that_can_be_chosen_has_its_line_against_depth():
    from skiplens.explorer.views.curvature import DEPTHS

    control = next(control for control in view().controls({}) if control.name == "branch_depth")
    assert list(DEPTHS) == list(range(int(control.low), int(control.high) + 1))
    assert all(depth % max(1, jumped) == 0 for jumped, depths in DEPTHS.items() for depth in depths)
    assert has_series(drawn(branch_depth=4), "condition_against_depth", "over 4, start")


def test_two_landscapes_are_those_of_the_code_beside_them():
    words = {"look_at": "landscapes", "depth": 5, "trained": 10, "seed": 3}
    seen, chosen = view(), values(**words)
    assert seen.draw(chosen).says == "Training two networks of 4 matrices …"
    torch.set_default_dtype(torch.float32)  # as the page has it
    planes = seen.measure(seen.measurement(chosen), silent)
    drawing = seen.draw(chosen, planes)
    names: dict = {}
    exec(drawing.code, names)
    torch.set_default_dtype(torch.float64)
    assert drawing.beside == len(drawing.figures) == 2
    assert [figure.name for figure in drawing.figures] == ["with_shortcuts", "without_shortcuts"]
    for figure, plane, losses in zip(drawing.figures, planes, names["result"], strict=True):
        (heights,) = figure.marks
        rows = torch.tensor(heights.rows, dtype=torch.float64).T  # the first direction runs along x
        assert torch.allclose(10**rows, losses.double(), rtol=1e-5)
        middle = len(heights.x) // 2
        assert heights.x[middle] == 0 and 10 ** rows[middle, middle] == pytest.approx(plane.loss, rel=1e-5)
    assert seen.measurement(values()) is None
