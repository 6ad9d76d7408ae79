import pytest
from hypothesis import given
from hypothesis import strategies as st

from skiplens.explorer.control import Choice, RefusedError, Several, Slider, Switch, shown_names

DEPTH = Slider("depth", "Depth", help="", low=2, high=100, default=10, whole=True)
SCALE = Slider("scale", "Scale", help="", low=0.001, high=10, default=1.0, logarithmic=True)
SHAPE = Choice("shape", "Shape", help="", options=(("resnet", "ResNet"), ("densenet", "DenseNet")), default="resnet")
SAMPLED = Switch("sampled", "Sampled", help="", default=False)
RUNS = Several("run", "Runs", help="", options=(("a", "A"), ("b/c", "B")))


@pytest.mark.parametrize(
    ("control", "words", "value"),
    [
        (DEPTH, "7", 7),
        (DEPTH, " 7 ", 7),
        (DEPTH, "7.0", 7),
        (SCALE, "1e-2", 0.01),
        (SHAPE, "densenet", "densenet"),
        (SAMPLED, "on", True),
        (SAMPLED, "off", False),
        (RUNS, "b/c,a,b/c,", ("b/c", "a")),
        (RUNS, "", ()),
    ],
)
def test_words_become_values(control, words, value):
    found = control.parse(words)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("control", "words", "message"),
    [
        (DEPTH, "deep", r"'deep' is no number. Give a whole number from 2 to 100"),
        (DEPTH, "", r"'' is no number"),
        (DEPTH, "nan", r"'nan' is no number"),
        (SCALE, "inf", r"'inf' is no number. Give a number from 0.001 to 10"),
        (DEPTH, "1", r"'1' is outside of the range. Give a whole number from 2 to 100"),
        (SCALE, "-1", r"outside of the range"),
        (DEPTH, "2.5", r"'2.5' is not a whole number"),
        (SHAPE, "resnt", r"There is no 'resnt'. Did you mean resnet"),
        (SAMPLED, "yes", r"'yes' is neither on nor off"),
        (RUNS, "a,z", r"There is no 'z'"),
        (SHAPE, "x" * 10_000, r"'x{40}…'"),
    ],
)
def test_wrong_words_are_refused_with_what_is_allowed(control, words, message):
    with pytest.raises(RefusedError, match=message):
        control.parse(words)


@given(st.integers(2, 100))
def test_whole_numbers_come_back_from_their_words(value):
    assert DEPTH.parse(DEPTH.words(value)) == value


@given(st.floats(0.001, 10).map(lambda number: float(f"{number:.3g}")))
def test_values_of_a_logarithmic_slider_come_back_from_their_words(value):
    assert SCALE.parse(SCALE.words(value)) == value


@given(st.text())
def test_no_words_do_more_than_be_refused(words):
    for control in (DEPTH, SCALE, SHAPE, SAMPLED, RUNS):
        try:
            control.parse(words)
        except RefusedError:
            pass


def test_a_control_that_hangs_on_a_hidden_one_is_hidden():
    first = Choice("first", "", help="", options=(("a", ""), ("b", "")), default="a")
    second = Switch("second", "", help="", default=True, only_when=("first", ("b",)))
    third = Switch("third", "", help="", default=True, only_when=("second", (True,)))
    controls = (first, second, third)
    assert shown_names(controls, {"first": "a", "second": True, "third": True}) == {"first"}
    assert shown_names(controls, {"first": "b", "second": True, "third": True}) == {"first", "second", "third"}
    assert shown_names(controls, {"first": "b", "second": False, "third": True}) == {"first", "second"}
