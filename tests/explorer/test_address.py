from hypothesis import given
from hypothesis import strategies as st

from skiplens.explorer.control import query_of, read, words_of
from tests.explorer.test_control import DEPTH, RUNS, SAMPLED, SHAPE

CONTROLS = (DEPTH, SHAPE, SAMPLED, RUNS)


@given(
    st.integers(2, 100), st.sampled_from(["resnet", "densenet"]), st.booleans(), st.sets(st.sampled_from(["a", "b/c"]))
)
def test_a_link_restores_the_values(depth, shape, sampled, runs):
    values = {"depth": depth, "shape": shape, "sampled": sampled, "run": tuple(runs)}
    state = read(CONTROLS, words_of(query_of(CONTROLS, values)))
    assert state.values == values and not state.refused and not state.unknown


def test_without_words_every_control_has_its_default():
    assert read(CONTROLS, {}).values == {"depth": 10, "shape": "resnet", "sampled": False, "run": ()}


def test_wrong_words_leave_the_default_and_say_so():
    state = read(CONTROLS, {"depth": "1000", "shape": "densenet"})
    assert state.values["depth"] == 10 and state.values["shape"] == "densenet"
    assert list(state.refused) == ["depth"]
    assert state.refused["depth"].endswith("Give a whole number from 2 to 100. The page shows 10.")


def test_names_that_no_control_has_are_told():
    assert read(CONTROLS, {"depth": "3", "debth": "4"}).unknown == ("debth",)


def test_the_first_of_two_words_counts():
    assert words_of("?depth=3&depth=4") == {"depth": "3"}


def test_a_flood_of_words_is_no_query():
    assert words_of("&".join(f"a{number}=1" for number in range(10_000))) == {}


@given(st.text())
def test_any_query_can_be_read(query):
    assert set(read(CONTROLS, words_of(query)).values) == {"depth", "shape", "sampled", "run"}
