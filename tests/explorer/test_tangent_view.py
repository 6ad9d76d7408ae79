"""The tangent view against second algorithms, the theory's tables and sampled networks; its words and code."""

import math
import re
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch

from skiplens.base import InvalidInputError, in_words
from skiplens.report import Report
from tests.explorer.drawings import figure_of, series_of, values_of
from tests.explorer.run_folders import write_report
from tests.kernels import reference
from tests.report.readings import tangent
from tests.sample_readings import structure
from tests.tolerances import STANDARD_ERRORS, assert_close


def view():
    from skiplens.explorer.views.tangent import TangentView

    return TangentView()


def values(**changed):
    return values_of(view(), **changed)


def setting(**changed):
    from skiplens.explorer.views.tangent import Setting

    return Setting.of(values(**changed))


def drawn(**changed):
    return view().draw(values(**changed))


@pytest.mark.parametrize("trained", ["branches", "all"])
def test_the_resnet_curve_is_that_of_the_unnormalised_recursion(trained):
    drawing = drawn(depth=7, branch_depth=3, branch_scale=0.6, trained=trained)
    curve, outer = series_of(drawing, "kernel_against_angle", "ResNet"), trained == "all"
    places = (0, 8, 32, 50, 64)
    cosines = [mpmath.cos(mpmath.pi * place / 64) for place in places]
    kernels = [reference.resnet(rho, [mpmath.mpf("0.6") ** 3] * 7, 3, outer)[1] for rho in cosines]
    assert_close(np.array(curve.y)[list(places)], np.array([float(k / kernels[0]) for k in kernels]))
    assert curve.x[32] == 90


@pytest.mark.parametrize(("title", "algorithm"), [("DenseNet", reference.densenet), ("vanilla", reference.vanilla)])
def test_the_other_curves_are_those_of_second_algorithms(title, algorithm):
    curve = series_of(drawn(depth=6), "kernel_against_angle", title)
    places = (0, 5, 32, 60)
    kernels = [algorithm(mpmath.cos(mpmath.pi * place / 64), 6)[1] for place in places]
    assert_close(np.array(curve.y)[list(places)], np.array([float(k / kernels[0]) for k in kernels]))


def test_variances_are_those_of_the_theory_s_table():
    # depth 20, width 200; the scale 0.3/sqrt(20) is rounded to 4 digits, which moves its row by a few 1e-5
    drawing = drawn(depth=20, width=200, mark=0.3)
    by_depth = {
        title: series_of(drawing, "variance_against_depth", title)
        for title in ("DenseNet", "vanilla", "ResNet, α shrinking")
    }
    at_twenty = {title: dict(zip(line.x, line.y, strict=True))[20] for title, line in by_depth.items()}
    assert at_twenty["DenseNet"] == pytest.approx(0.049553385, rel=1e-7)
    assert at_twenty["vanilla"] == pytest.approx(0.46593163, rel=1e-7)
    assert at_twenty["ResNet, α shrinking"] == pytest.approx(0.022133825, rel=1e-4)
    by_width = series_of(drawing, "variance_against_width", "vanilla")
    assert dict(zip(by_width.x, by_width.y, strict=True))[200] == pytest.approx(0.46593163, rel=1e-7)


def test_facts_hold_the_diagonal_and_its_spread():
    facts = dict(drawn(depth=10, width=50, branch_scale=0.3).facts)
    mean, variance = 3.90940790299616, 2.19971422822416
    assert float(facts["kernel at equal inputs"]) == pytest.approx(mean, rel=5e-3)  # three digits are shown
    assert facts["its spread at width 50"] == f"±{100 * math.sqrt(variance) / mean:.0f} %"
    assert float(facts["growth of the squared signal"].removeprefix("×")) == pytest.approx(1.09**10, rel=5e-3)


def test_the_advised_width_gives_the_spread_it_promises():
    from skiplens.explorer.views.tangent import relative_variance

    about = int(dict(drawn(depth=30).facts)["width for a spread of ±10 %"].removeprefix("about ").replace(",", ""))
    assert math.sqrt(relative_variance(setting(depth=30, width=about), "resnet")) == pytest.approx(0.1, rel=0.05)


def test_the_marked_scale_is_a_over_the_mth_root_of_the_depth():
    assert setting(depth=64, branch_depth=3, mark=2.0).marked_scale == 0.5
    marks = figure_of(drawn(depth=64, branch_depth=3, mark=2.0), "growth_against_scale").marks
    assert next(mark.value for mark in marks if getattr(mark, "axis", "") == "x") == 0.5


def test_growth_is_the_product_over_blocks():
    line = series_of(drawn(depth=5, branch_depth=2), "growth_against_scale", "signal")
    assert_close(np.array(line.y), (1 + np.array(line.x) ** 2) ** 5)


@pytest.mark.parametrize("architecture", ["resnet", "densenet", "vanilla"])
def test_sampled_networks_scatter_around_the_limit(architecture):
    asked = values(architecture=architecture, depth=5, width=300, networks=100)
    sampled = view().measure(view().measurement(asked), lambda *_: None)
    theory = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}[architecture]
    curve = torch.tensor(series_of(view().draw(asked), "kernel_against_angle", theory).y)[::8]
    error = sampled.kernels.std(0) / 10
    # beside the diagonal the mean of finite networks is off by at most about half a kernel over the width (theory note)
    assert bool(((sampled.kernels.mean(0) - curve).abs() <= STANDARD_ERRORS * error + 0.5 / 300).all())


def test_the_spread_of_sampled_networks_is_the_exact_one():
    from skiplens.explorer.views.tangent import relative_variance

    asked = values(depth=5, width=300, networks=100)
    value, error = view().measure(view().measurement(asked), lambda *_: None).relative_variance
    assert abs(value - relative_variance(setting(depth=5, width=300), "resnet")) <= STANDARD_ERRORS * error


def test_sampled_networks_are_drawn_over_the_curves():
    asked = values(networks=10)
    sampled = view().measure(view().measurement(asked), lambda *_: None)
    drawing = view().draw(asked, sampled)
    faint = [mark for mark in figure_of(drawing, "kernel_against_angle").marks if getattr(mark, "faint", False)]
    assert len(faint) == 10
    assert series_of(drawing, "variance_against_depth", "10 drawn").x == (20.0,)


@pytest.mark.parametrize("architecture", ["resnet", "densenet", "vanilla"])
def test_the_code_makes_the_same_numbers(architecture):
    asked = values(architecture=architecture, depth=9, branch_scale=0.37, trained="all", networks=12, seed=3)
    sampled = view().measure(view().measurement(asked), lambda *_: None)
    found: dict = {}
    exec(view().draw(asked, sampled).code, found)
    theory = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}[architecture]
    assert_close(found["result"], torch.tensor(series_of(view().draw(asked), "kernel_against_angle", theory).y))
    assert torch.equal(found["sampled"], sampled.kernels)


def test_without_sampling_the_code_is_four_lines():
    assert len(drawn(sampled=False).code.splitlines()) == 4


def test_nothing_is_measured_when_it_is_not_asked_for():
    assert view().measurement(values(sampled=False)) is None


def test_a_measurement_depends_on_what_matters_only():
    assert view().measurement(values(mark=0.5)) == view().measurement(values(mark=1.5))
    assert view().measurement(values(branch_scale=0.5)) != view().measurement(values(branch_scale=1.5))
    dense = values(architecture="densenet")
    assert view().measurement(dense | {"branch_scale": 0.5}) == view().measurement(dense | {"branch_scale": 1.5})


def test_progress_is_reported_and_stops_the_work():
    seen = []
    view().measure(view().measurement(values(networks=15)), lambda _, done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]

    def stop(label, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        view().measure(view().measurement(values()), stop)


def test_the_words_follow_the_values():
    assert "too large for this depth" in drawn(depth=100, branch_scale=0.5).says
    assert "small enough for this depth" in drawn(depth=100, branch_scale=0.05).says
    assert "this ResNet is linear" in drawn(branch_depth=1).says
    assert "close to its infinitely wide limit" in drawn(width=1000, depth=2, branch_scale=0.1).says
    assert "says little about one network" in drawn(architecture="vanilla", depth=100, width=20).says


def test_the_marked_scale_is_advised_only_where_it_helps():
    assert "the marked scale α = 0.224 would keep it bounded." in drawn(depth=20, branch_scale=0.4, mark=1.0).says
    assert "α = 0.447 is too large as well, so lower a." in drawn(depth=20, branch_scale=0.4, mark=2.0).says


@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_branches_are_named_as_those_of_the_resnet_where_another_architecture_is_chosen(scale):
    own, other = (drawn(depth=100, branch_scale=scale, architecture=name) for name in ("resnet", "vanilla"))
    assert "The branches are " in own.says and "The branches of the ResNet are " in other.says
    growth = dict(own.facts)["growth of the squared signal"]
    assert dict(other.facts)["growth of the squared signal, ResNet"] == growth


def test_a_linear_resnet_is_the_cosine():
    drawing = drawn(branch_depth=1)
    curve, cosine = (
        series_of(drawing, "kernel_against_angle", "ResNet"),
        series_of(drawing, "kernel_against_angle", "linear model"),
    )
    assert_close(np.array(curve.y), np.array(cosine.y))


class TestGhost:
    """A model of the user on the curves of the theory."""

    def haunted(self, root, made, **words):
        from skiplens.explorer.views.runs_folder import RunsFolder
        from skiplens.explorer.views.tangent import TangentView

        write_report(root / "mine", made)
        own = TangentView(RunsFolder(root))
        return own.draw(values_of(own, ghost="mine", sampled=False, **words))

    def test_pairs_of_samples_on_the_curve_are_no_distance_from_it(self, tmp_path):
        curve = series_of(drawn(sampled=False), "kernel_against_angle", "ResNet")
        angles = torch.tensor([[0.0, 45.0, 90.0], [45.0, 0.0, 45.0], [90.0, 45.0, 0.0]], dtype=torch.float64)
        kernel = torch.tensor(curve.y)[(angles / 180 * 64).long()]
        sizes = torch.tensor([1.0, 2.0, 3.0])
        diagonals = torch.tensor([[1.0], [2.0], [3.0]])
        reading = replace(
            tangent([1.0, 1.0, 1.0]),
            kernel=kernel * sizes[:, None] * sizes,
            angles=angles.deg2rad(),
            seed_diagonals=diagonals,
        )
        drawing = self.haunted(tmp_path, Report("Mine", (structure(5), reading)))
        pairs = series_of(drawing, "kernel_against_angle", "mine, pairs of samples")
        assert pairs.x == pytest.approx((45.0, 90.0, 45.0)) and pairs.crossed
        assert pairs.y == pytest.approx((curve.y[16], curve.y[32], curve.y[16]))
        over_seeds = series_of(drawing, "variance_against_depth", "mine, over seeds")
        assert (over_seeds.x, over_seeds.y) == ((5.0,), pytest.approx((0.25,)))  # variance 1 over a mean of 2, squared
        assert "At its 5 blocks its kernel varies by 50 % from seed to seed." in drawing.says
        far = re.search(r"Samples of mine \(crosses\) lie (\S+) from the curve of the ResNet", drawing.says)
        assert far is not None and (far[1] == "0" or "10⁻¹" in far[1])
        moved = replace(reading, kernel=torch.ones(3, 3) + torch.eye(3) * 1e-9)
        drawing = self.haunted(tmp_path / "other", Report("Mine", (structure(5), moved)), architecture="vanilla")
        plain = series_of(drawing, "kernel_against_angle", "vanilla").y
        expected = (2 * (1 - plain[16]) + 1 - plain[32]) / 3
        assert f"lie {in_words(expected, 2)} from the curve of the vanilla network" in drawing.says

    def test_without_seeds_or_blocks_only_the_pairs_are_drawn(self, tmp_path):
        reading = replace(tangent([1.0, 1.0]), angles=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        drawing = self.haunted(tmp_path, Report("Mine", (reading,)))
        assert "from seed to seed" not in drawing.says.partition("mine")[2]
        assert all("mine" not in mark.name for mark in figure_of(drawing, "variance_against_depth").marks)

    def test_a_report_without_angles_or_without_a_kernel_is_refused(self, tmp_path):
        for place, readings in enumerate([(structure(),), (tangent([1.0, 1.0]),)]):
            with pytest.raises(InvalidInputError, match="no tangent kernel between vectors; choose another one"):
                self.haunted(tmp_path / str(place), Report("Mine", readings))

    def test_without_runs_there_is_nobody_to_choose(self):
        assert "ghost" not in {control.name for control in view().controls({})}
