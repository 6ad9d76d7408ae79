import pytest

from skiplens.base.errors import SettingsError
from skiplens.base.settings import option
from skiplens.zoo.entry import NetworkOptions


class Example(NetworkOptions):
    depth: int = option(2, "layers", minimum=1)
    widths: tuple[int, ...] = option((3, 4), "units", minimum=1)

    def input_shape(self) -> tuple[int, ...]:
        return self.widths[:1]


def test_values_at_the_limit_are_accepted():
    assert Example(depth=1, widths=(1, 1)).difference() == {"depth": 1, "widths": (1, 1)}


def test_a_number_below_its_limit_is_refused():
    with pytest.raises(SettingsError, match=r"Example.depth must be at least 1; got 0"):
        Example(depth=0)


def test_each_entry_of_a_list_has_the_limit():
    with pytest.raises(SettingsError, match=r"Example.widths must be at least 1; got \(3, 0\)"):
        Example(widths="3,0")


def test_not_a_number_is_refused():
    class Scaled(Example):
        scale: float = option(1.0, "a factor", minimum=0.0)

    with pytest.raises(SettingsError, match=r"scale must be at least 0.0; got nan"):
        Scaled(scale="nan")
