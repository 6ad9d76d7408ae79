import inspect

import pytest

from skiplens.base.arguments import accept_old_order


@accept_old_order("model", "loss", "data", "method")
def measured(model, data, *, loss="mse", method="auto"):
    """What came, by name."""
    return model, data, loss, method


def test_the_new_order_passes_without_a_warning():
    assert measured("m", "d") == measured(model="m", data="d") == ("m", "d", "mse", "auto")
    assert measured("m", "d", loss="l", method="exact") == measured("m", loss="l", data="d", method="exact")
    assert list(inspect.signature(measured).parameters) == ["model", "data", "loss", "method"]
    assert measured.__doc__ == "What came, by name."


@pytest.mark.parametrize(
    ("given", "named"), [(("m", "l", "d"), {}), (("m", "l", "d", "exact"), {}), (("m", "l"), {"data": "d"})]
)
def test_the_order_of_old_is_put_right_with_a_warning(given, named):
    with pytest.warns(DeprecationWarning, match=r"measured\(model, loss.*write measured\(model, data, …\)") as told:
        found = measured(*given, **named)
    assert found == ("m", "d", "l", "exact" if len(given) > 3 else "auto")
    assert told[0].filename == __file__  # the caller's line, not ours


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_never_a_call_is_none_now():
    with pytest.raises(TypeError, match="positional"):
        measured("m", "l", "d", "exact", "more")
    with pytest.raises(TypeError, match="multiple values"):
        measured("m", "l", "d", loss="l")
    with pytest.raises(TypeError, match="unexpected keyword"):
        measured("m", "d", methd="exact")
