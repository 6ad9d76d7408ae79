import math
from fractions import Fraction

import pytest
import torch
from torch.testing import assert_close

from skiplens import zoo
from skiplens.base.errors import NotResidualError
from skiplens.base.progress import silent
from skiplens.explorer.control import read
from skiplens.explorer.exports import picture_code
from skiplens.explorer.views.paths import CONTROLS, PathsView, predict
from skiplens.explorer.views.runs_folder import RunsFolder
from skiplens.zoo.layers import count_joins
from tests.explorer.run_folders import report, write_report
from tests.report.readings import paths

VIEW = PathsView()


def drawn(measured=None, **words):
    state = read(VIEW.controls({}), words)
    assert not state.refused
    return VIEW.draw(state.values, measured)


def energies(depth: int, beta: Fraction) -> list[Fraction]:
    """ε_r² of equation 16 in exact arithmetic."""
    terms = [(math.comb(depth - 1, r - 1) * beta**r) ** 2 for r in range(1, depth + 1)]
    return [term / sum(terms) for term in terms]


def run_code(drawing):
    names = {}
    exec(drawing.code, names)
    return names["result"]


CASES = [(2, "0.5"), (12, "0.5"), (40, "3"), (100, "0.01")]


@pytest.mark.parametrize(("depth", "beta"), CASES)
def test_the_weights_are_those_of_the_paper(depth, beta):
    drawing = drawn(depth=str(depth), beta=beta)
    exact = [float(energy) for energy in energies(depth, Fraction(beta))]
    _, line, asymptote = drawing.figures[0].marks
    assert line.x == tuple(map(float, range(1, depth + 1)))
    assert_close(torch.tensor(line.y), torch.tensor(exact), rtol=1e-12, atol=1e-300)
    assert_close(run_code(drawing), torch.tensor(exact), rtol=1e-12, atol=1e-300)
    assert asymptote.value == pytest.approx(depth * float(beta) / (1 + float(beta)), rel=1e-14)


@pytest.mark.parametrize(("depth", "beta"), CASES)
def test_peak_and_band_are_those_of_the_weights(depth, beta):
    facts = dict(drawn(depth=str(depth), beta=beta).facts)
    exact = energies(depth, Fraction(beta))
    assert facts["peak path length"] == str(1 + exact.index(max(exact)))
    first, last = map(int, facts["90 % of the energy"].split(" to "))
    assert sum(exact[: first - 1]) < Fraction(1, 20) <= sum(exact[:first])
    assert sum(exact[: last - 1]) < Fraction(19, 20) <= sum(exact[:last])
    (band, *_) = drawn(depth=str(depth), beta=beta).figures[0].marks
    assert (band.x[0], band.x[-1]) == (first, last)


@pytest.mark.parametrize(("depth", "beta"), CASES[1:3])
def test_the_complexity_is_that_of_the_mixture(depth, beta):
    facts = dict(drawn(depth=str(depth), beta=beta).facts)
    exact = energies(depth, Fraction(beta))
    mean = sum(r * energy for r, energy in enumerate(exact, start=1))
    B = float(sum(r * (r - 1) * energy for r, energy in enumerate(exact, start=1)) / mean)
    theta = 0.5 * math.log(B) - (B - 1) / (B + 1)
    assert float(facts["complexity θ"]) == pytest.approx(theta, rel=5e-3)  # the fact has three digits
    kept, _, here = next(f for f in drawn(depth=str(depth), beta=beta).figures if f.name == "complexity").marks
    assert here.value == float(beta)
    nearest = min(range(len(kept.x)), key=lambda index: abs(math.log(kept.x[index] / float(beta))))
    assert kept.y[nearest] == pytest.approx(theta, abs=0.02)  # a point of the grid beside β


def test_the_asymptote_is_reached_by_deep_networks():
    band, line, reference = next(f for f in drawn(beta="0.5").figures if f.name == "against_depth").marks
    assert reference.value == pytest.approx(1 / 3)
    assert abs(line.y[-1] - reference.value) <= 1 / line.x[-1]
    assert band.high[-1] - band.low[-1] < 0.1 < band.high[3] - band.low[3]


def test_beta_comes_from_the_weights_that_make_it():
    words = {"given": "scale", "scale": "0.25", "width": "100", "gate": "0.4", "depth": "30"}
    facts = dict(drawn(**words).facts)
    assert facts["β"] == "1"  # ρ n C/√n = 0.4 · 10 · 0.25
    assert_close(run_code(drawn(**words)), run_code(drawn(beta="1", depth="30")), rtol=1e-12, atol=0)


def test_models_of_the_view_have_at_least_two_shortcuts():
    (choice,) = (control for control in CONTROLS if control.name == "model")
    assert all(count_joins(zoo.build(name)) >= 2 for name, _ in choice.options)


def test_branches_of_a_linear_network_times_t_make_paths_through_r_branches_times_t_to_the_r():
    measured = VIEW.measure({"model": "shortcut_linear", "factor": 3.0, "seed": 0}, silent)
    orders = torch.arange(len(measured.plain.energy))
    assert_close(measured.scaled.energy, 3.0 ** (2 * orders) * measured.plain.energy, rtol=1e-9, atol=1e-25)


def test_the_code_of_a_network_measures_the_same():
    words = {"look_at": "network", "model": "ensemble_resnet", "factor": "2"}
    values = read(VIEW.controls({}), words).values
    reading = VIEW.measure(VIEW.measurement(values), silent)
    drawing = drawn(reading, **words)
    assert_close(run_code(drawing), reading.scaled.distribution, rtol=1e-9, atol=1e-12)
    assert drawing.figures[0].marks[0].y == pytest.approx(reading.scaled.distribution.tolist())
    assert dict(drawing.facts)["before scaling"] == f"{reading.plain.mean_depth:.2f}"


def test_before_it_is_measured_a_network_has_no_picture():
    drawing = drawn(look_at="network")
    assert drawing.figures == () and drawing.says == "Measuring digits_resnet …"


def test_a_measurement_depends_on_the_network_and_on_nothing_of_the_theory():
    values = read(VIEW.controls({}), {"look_at": "network", "depth": "7"}).values
    assert VIEW.measurement(values) == {"model": "digits_resnet", "factor": 1, "seed": 0}
    assert VIEW.measurement(read(VIEW.controls({}), {}).values) is None


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_laws_are_predicted_for_the_scaled_network(factor):
    """Networks that follow a law before scaling: the laws' own formulas with the scaled parameter."""
    in_phase = [(math.comb(6, r) * 0.7**r) ** 2 for r in range(7)]
    scaled = torch.tensor([(math.comb(6, r) * (factor * 0.7) ** r) ** 2 for r in range(7)])
    assert_close(predict(paths(in_phase), factor)[0].energies, scaled / scaled.sum(), rtol=1e-8, atol=0)
    at_right_angles = [math.comb(6, r) * 0.7**r for r in range(7)]
    scaled = torch.tensor([math.comb(6, r) * (factor**2 * 0.7) ** r for r in range(7)])
    prediction = predict(paths(at_right_angles), factor)[1]
    assert_close(prediction.energies, scaled / scaled.sum(), rtol=1e-8, atol=0)
    assert prediction.distance(paths((scaled / 3).tolist())) == pytest.approx(0, abs=1e-8)


def test_with_one_shortcut_every_law_fits():
    with pytest.raises(NotResidualError, match="fewer than two shortcuts"):
        predict(paths([1.0, 1.0]), 1.0)


class TestGhost:
    """A model of the user on the curves of the theory."""

    def haunted(self, root, energy, **words):
        write_report(root / "mine", report("Mine", energy=energy))
        view = PathsView(RunsFolder(root))
        state = read(view.controls({}), {"ghost": "mine", **words})
        assert not state.refused
        return view.draw(state.values)

    def test_its_spectrum_lies_on_the_law_it_was_made_from(self, tmp_path):
        exact = energies(6, Fraction(2))  # five blocks
        drawing = self.haunted(tmp_path, tuple(map(float, exact)), depth="6", beta="2")
        theory, ghost = drawing.figures[0].marks[1], drawing.figures[0].marks[-1]
        assert ghost.name == "mine"
        assert ghost.x == theory.x
        assert ghost.y == pytest.approx(theory.y)
        assert dict(drawing.facts)["β of mine"] == "2"
        mean = float(sum(r * energy for r, energy in enumerate(exact, start=1)))
        assert dict(drawing.facts)["mean length, mine"] == f"{mean:.1f} of 6"
        (point,) = (mark for mark in drawing.figures[2].marks if mark.name == "mine, mean")
        assert (point.x[0], point.y[0]) == pytest.approx((2.0, mean / 6))

    def test_without_runs_there_is_nobody_to_choose(self, tmp_path):
        for view in (PathsView(), PathsView(RunsFolder(tmp_path))):
            assert "ghost" not in {control.name for control in view.controls({})}

    def test_a_report_of_one_block_is_refused(self, tmp_path):
        with pytest.raises(NotResidualError, match="no path spectrum of two or more blocks; choose another one"):
            self.haunted(tmp_path, (1.0, 2.0))

    def test_the_lines_that_draw_it_again_are_left_out(self):
        view = PathsView()
        assert "picture('/paths?" in picture_code(view, "?depth=5&ghost=none")
        assert "ghost" not in picture_code(view, "?depth=5&ghost=none")
        assert picture_code(view, "?depth=5&ghost=mine") == ""


def training(**words: str):
    view = PathsView()
    words = {"look_at": "training", "learner": "ensemble_resnet", **words}
    values = read(view.controls(words), words).values
    torch.set_default_dtype(torch.float32)  # as the page has it
    try:
        measured = view.measure(view.measurement(values), silent)
        return view.draw(values, measured), measured
    finally:
        torch.set_default_dtype(torch.float64)


def test_a_training_is_seen_at_a_moment_and_the_code_makes_the_same_spectrum():
    drawing, history = training(rate="0.002", moment="43", seed="1")
    assert history.steps.tolist() == [*range(0, 101, 5)] and history.outcome == "finished"
    names: dict = {}
    torch.set_default_dtype(torch.float32)
    exec(drawing.code, names)
    torch.set_default_dtype(torch.float64)
    bars, start = drawing.figures[0].marks
    assert list(bars.y) == pytest.approx(names["result"].tolist(), rel=1e-5)
    assert sum(bars.y) == pytest.approx(1) == sum(start.y)
    depth = [sum(r * share for r, share in enumerate(mark.y)) for mark in (bars, start)]
    assert drawing.figures[0].title == "Path spectrum after 40 steps"
    assert f"passes {depth[0]:.2f} of its 9 branches, {depth[1]:.2f} before training" in drawing.says
    assert drawing.says.endswith("shallower." if depth[0] < depth[1] else "deeper.")
    assert drawing.figures[1].marks[1].value == 40.0


def test_a_training_that_diverges_says_so():
    drawing, history = training(rate="0.1", decay="0.2", moment="100")
    assert history.steps[-1] < 100
    assert "The training ended early: diverged" in drawing.says
