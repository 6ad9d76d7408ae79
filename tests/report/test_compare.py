import json
import math

import pytest
import torch
from scipy import stats
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.base.words import in_words
from skiplens.paths.reading import PathSpectrum
from skiplens.plots.figure import Points
from skiplens.report.compared import EDGE, ComparedModel, Measured, all_numbers, effect
from skiplens.report.comparison import ONE_MODEL, SAME_WEIGHTS, Comparison, _counted, drawn_by_seed
from skiplens.signal.reading import SignalReading
from tests.report.networks import BLOCKS, build, data
from tests.report.test_report import HOSTILE


def verdicts(comparison: Comparison, index: int = 1) -> dict[str, str]:
    return {number.label: number.verdict(index) for number in comparison.numbers}


@pytest.fixture(scope="module")
def pair() -> Comparison:
    torch.set_default_dtype(torch.float64)  # a fixture of the module comes before that of the test
    return sl.compare({"small": build(0.1), "large": build(1.0)}, data(), lenses=["paths"], draws=4)


def drawn_from(**reports) -> Comparison:
    """A comparison of reports that were taken already."""
    return Comparison(tuple(ComparedModel(name, tuple(taken)) for name, taken in reports.items()))


@pytest.fixture(scope="module")
def mixed() -> Comparison:
    """A builder, a model, and a builder that gives the same weights for every seed."""
    torch.set_default_dtype(torch.float64)
    models = {HOSTILE: build(0.1), "trained": build(1.0)(7), "pretrained": lambda seed: build(0.1)(3)}
    return sl.compare(models, data(), lenses=["structure"], draws=2)


def clearest(comparison: Comparison) -> Measured:
    """The measured number with the smallest p-value, of those that are told from chance."""
    tested = [number for number in comparison.numbers if not number.exact and number.verdict(1) in ("higher", "lower")]
    return min(tested, key=lambda number: number.adjusted[0])


@pytest.mark.slow
def test_a_difference_of_the_architecture_is_told_from_chance(pair):
    found = verdicts(pair)
    assert found["branch over shortcut, median"] == found["mean depth in branches"] == "higher"
    assert found["parameters"] == found["residual blocks"] == "same"
    assert "more than seed-to-seed noise" in pair.verdict
    first, second = (float(values.mean()) for values in clearest(pair).values)
    words = f"{clearest(pair).label} {in_words(first)} → {in_words(second)}"
    assert pair.verdict.lower().startswith(words.lower())


def test_the_numbers_are_those_of_the_readings(pair):
    (depth,) = (number for number in pair.numbers if number.label == "mean depth in branches")
    model = build(0.1)(0)
    taken = sl.inspect(model, tuple(part[:16] for part in data()), lenses=["paths"]).reading(PathSpectrum)
    assert float(depth.values[0][0]) == taken.mean_depth and len(depth.values[0]) == 4


def test_two_of_a_kind_do_not_differ(pair):
    reports = pair.contenders[0].reports
    found = verdicts(drawn_from(a=reports[:2], b=reports[2:]))
    assert set(found.values()) <= {"same", "seed noise"}


@pytest.mark.parametrize("draws", [(5, 5), (4, 7)])
def test_an_effect_has_the_interval_of_welch(draws):
    """SciPy's own interval is the oracle; the unit is the spread of draws."""
    left, right = (torch.randn(count, dtype=torch.float64) for count in draws)
    mean, half = effect(left, right)
    spread = float(((left.var() + right.var()) / 2).sqrt())
    wanted = stats.ttest_ind(right, left, equal_var=False).confidence_interval(0.95)
    assert spread * (mean - half) == pytest.approx(wanted.low)
    assert spread * (mean + half) == pytest.approx(wanted.high)


def test_what_exists_once_has_no_interval():
    assert all(map(math.isnan, effect(torch.ones(1), torch.zeros(1))))


def test_the_chart_has_a_row_for_each_number_that_was_tested(pair):
    chart = pair.sections()[0].figures[0]
    tested = [number.label for number in pair.numbers if not math.isnan(number.p_values[0])]
    (dots,) = (mark for mark in chart.marks if isinstance(mark, Points))
    assert list(chart.y_names) == tested and len(dots.x) == len(tested) > 3
    assert max(map(abs, dots.x)) <= EDGE


def test_facts_of_the_structure_stand_apart_and_drawings_beside_their_models(pair):
    anchors = [section.anchor for section in pair.sections()]
    assert anchors[:3] == ["effects", "model-1", "model-2"] and anchors[-1] == "structure"
    assert all(section.drawing is not None for section in pair.sections()[1:3])


def test_models_that_exist_once_are_looked_at_once_and_it_is_said(mixed):
    assert [len(one.reports) for one in mixed.contenders] == [2, 1, 1]
    assert [one.note for one in mixed.contenders] == ["", ONE_MODEL, SAME_WEIGHTS]


def test_a_model_that_exists_once_is_held_against_the_draws_of_the_other(pair):
    small, large = pair.contenders
    comparison = drawn_from(drawn=small.reports, trained=large.reports[:1])
    assert verdicts(comparison)["branch over shortcut, median"] == "higher"


def test_two_models_that_exist_once_are_not_tested_and_it_is_said(pair):
    comparison = drawn_from(**{one.name: one.reports[:1] for one in pair.contenders})
    found = verdicts(comparison)
    assert found.pop("parameters") == found.pop("residual blocks") == found.pop("projection shortcuts") == "same"
    assert (
        set(found.values()) == {"not tested"}
        and "Nothing could be tested: each model exists once" in comparison.verdict
    )
    sizes = {n.label: [float(v.mean()) for v in n.values] for n in comparison.numbers if not n.exact}
    ratios = {k: max(v) / min(v) for k, v in sizes.items() if min(v) > 0 and math.isfinite(max(v))}
    farthest = max(ratios, key=ratios.get)
    assert comparison.verdict.lower().startswith(f"{farthest} {in_words(sizes[farthest][0])} → ".lower())


def test_each_of_three_is_held_against_the_first(pair):
    small, large = pair.contenders
    comparison = drawn_from(first=small.reports, second=small.reports, third=large.reports)
    (ratio,) = (number for number in comparison.numbers if number.label == "branch over shortcut, median")
    assert [ratio.verdict(1), ratio.verdict(2)] == ["seed noise", "higher"]
    assert ratio.p_values[0] == 1  # the same seeds, so the same weights
    row = ratio.row(comparison.names)
    assert list(row) == ["number", "first", "second", "third", "difference, second", "difference, third"]


def test_the_folder_holds_page_numbers_and_overlaid_figures(pair, tmp_path):
    page = pair.write(tmp_path)
    text = page.read_text()
    assert page.name == "comparison.html" and "small against large" in text and "Welch" in text
    assert 'class="verdict severity-unknown"' in text  # neither model is called good
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert figures >= {"paths_path_lengths.svg", "signal_signal_by_depth.png"}
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert [model["draws"] for model in content["models"]] == [4, 4]
    entry = next(entry for entry in content["numbers"] if entry["number"] == "mean depth in branches")
    assert len(entry["values"]["small"]) == 4 and entry["against_first"][0]["verdict"] == "higher"
    assert 0 < entry["against_first"][0]["p"] < entry["against_first"][0]["p_holm"] < 0.05


def test_overlaid_figures_have_a_line_and_a_band_for_each_model(pair):
    (section,) = (section for section in pair.sections() if section.anchor == "paths")
    (figure,) = section.figures
    assert [mark.name for mark in figure.marks] == ["", "small", "", "large"]
    assert len({mark.colour for mark in figure.marks}) == 2
    readings = pair.contenders[0].readings(PathSpectrum)
    mean = torch.stack([reading.distribution for reading in readings]).mean(0)
    assert figure.marks[1].y == pytest.approx(mean.tolist(), rel=1e-12) and len(figure.marks[1].x) == BLOCKS + 1


def test_models_that_want_other_inputs_have_data_of_their_own():
    narrow = nn.Sequential(nn.Linear(2, 6), build(0.1)(0))
    inputs, targets = data()
    both = {"wide": (inputs, targets), "narrow": (inputs[:, :2], targets)}
    comparison = sl.compare({"wide": build(0.1), "narrow": narrow}, both, lenses=["structure"], draws=1)
    assert comparison.names == ("wide", "narrow") and comparison.problems == ()
    with pytest.raises(InvalidInputError, match=r"no entry for narrow; wanted one for each model"):
        sl.compare({"wide": build(0.1), "narrow": narrow}, {"wide": both["wide"]}, lenses=["structure"])


def test_every_word_is_escaped(mixed, tmp_path):
    text = mixed.save(tmp_path / "c.html").read_text()
    assert "<img src=x" not in text and text.count("</script>") == text.count("<script")


def test_an_interruption_leaves_the_draws_that_were_finished():
    asked = 0

    def stop(label, done, total):
        nonlocal asked
        asked += label.endswith("signal: following signal and gradient") and done == 0
        if asked == 4:
            raise KeyboardInterrupt

    comparison = sl.compare({"a": build(0.1), "b": build(1.0)}, data(), lenses=["structure"], draws=5, progress=stop)
    assert [len(one.readings(SignalReading)) for one in comparison.contenders] == [2, 1]
    assert any("interrupted" in problem.message for problem in comparison.problems)


def test_an_interruption_before_anything_can_be_compared_is_one():
    def stop(label, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sl.compare({"a": build(0.1), "b": build(1.0)}, data(), progress=stop)


def test_a_function_without_a_seed_is_drawn_by_seed_and_leaves_the_generators_alone():
    state = torch.get_rng_state()
    drawn = drawn_by_seed(lambda: nn.Linear(3, 3))
    first, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(first.weight, again.weight) and not torch.equal(first.weight, other.weight)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": {"a": build(0.1)}}, "needs at least 2 models, got 1: a"),
        ({"draws": 0}, "A comparison of 0 draws was asked for; wanted at least 1"),
        ({"lenses": ["pathz"]}, "There is no lens 'pathz'"),
        ({"models": {"a": build(0.1), "b": 3}}, "a torch.nn.Module instance was wanted"),
    ],
)
def test_bad_input_is_one_clear_error(given, message):
    models = {"a": build(0.1), "b": build(1.0)}
    with pytest.raises(InvalidInputError, match=message):
        sl.compare(**({"models": models, "data": data()} | given))


def told(*numbers: Measured) -> str:
    """The verdict of a comparison with these numbers."""
    comparison = Comparison((ComparedModel("a", ()), ComparedModel("b", ())))
    vars(comparison)["numbers"] = numbers
    return comparison.verdict


def test_what_was_measured_is_told_before_what_every_draw_has_alike():
    counted = Measured(
        "hypotheses",
        "hypotheses",
        (torch.tensor([8.0, 8.0]), torch.tensor([5.0, 5.0])),
        False,
        (math.nan,),
        (math.nan,),
    )
    values = torch.tensor([77.0, 78.0]), torch.tensor([41.0, 42.0])
    steep = Measured("curvature", "curvature", values, False, (1e-4,), (1e-3,))
    noise = Measured("curvature", "trace", values, False, (0.5,), (0.5,))
    said = "Curvature 77.5 → 41.5. 1 of 2 numbers differs by more than seed-to-seed noise."
    assert told(counted, steep, noise) == said
    assert told(counted, noise) == (
        "No number differs by more than seed-to-seed noise, of 1 tested. In every draw: hypotheses 8 → 5."
    )


def test_what_every_draw_has_alike_is_not_held_against_noise():
    alike = torch.tensor([8.0, 8.0]), torch.tensor([5.0, 5.0])
    numbers = [Measured("hypotheses", name, alike, False, (math.nan,), (math.nan,)) for name in ("hold", "fail")]
    assert _counted(numbers, ("a", "b")) == "They differ in: hold, fail."
    drawn = Measured("curvature", "trace", (alike[0], alike[1] + torch.rand(2)), False, (1e-4,), (1e-3,))
    assert "2 of 2 numbers differ by more than seed-to-seed noise" in _counted((numbers[0], drawn), "ab")


def test_what_the_correction_takes_back_is_unclear_and_not_noise():
    values = torch.tensor([77.0, 78.0]), torch.tensor([41.0, 42.0])
    rows = [("differs", 1e-4, 1e-3), ("between", 0.006, 0.06), ("noise", 0.5, 1.0)]
    numbers = [Measured("curvature", name, values, False, (p,), (holm,), ((2.0, 1.0),)) for name, p, holm in rows]
    assert [number.verdict(1) for number in numbers] == ["lower", "unclear", "seed noise"]
    assert numbers[1].row(("a", "b"))["difference"] == "unclear, p = 0.06"
    chart = all_numbers(numbers, ("a", "b"))
    assert chart is not None and "seed noise or unclear" in [getattr(mark, "name", "") for mark in chart.marks]
