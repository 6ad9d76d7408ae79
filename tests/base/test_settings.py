import json
from typing import Literal

import pytest

from skiplens.base.errors import SettingsError
from skiplens.base.settings import Settings, option


class Inner(Settings):
    learning_rate: float = option(0.1, "step size")


PLAIN = Inner()


class Probe(Settings):
    depth: int = option(10, "residual blocks")
    branch_scale: float = option(1.0, "scale of each matrix of a branch (alpha)")
    normalised: bool = option(False, "divide by the norm")
    law: Literal["gaussian", "uniform"] = option("gaussian", "law of the weights")
    widths: tuple[int, ...] = option((8, 8), "widths of the layers")
    seed: int | None = option(None, "seed")
    inner: Inner = option(PLAIN, "how it is trained")


def test_words_and_values_give_the_same_settings():
    words = {"depth": "3", "branch_scale": ".5", "normalised": "true", "law": "uniform", "widths": "4,5,6", "seed": "7"}
    values = {"depth": 3, "branch_scale": 0.5, "normalised": True, "law": "uniform", "widths": [4, 5, 6], "seed": 7}
    assert Probe.from_json(words) == Probe.from_json(values)
    assert Probe.from_json(words).key() == Probe.from_json(values).key()


def test_json_round_trip_through_text():
    settings = Probe(depth=4, widths=(1, 2, 3), inner=Inner(learning_rate=0.5))
    assert Probe.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_difference_names_only_what_differs():
    assert Probe().difference() == {}
    assert Probe(depth=4, seed=1).difference() == {"depth": 4, "seed": 1}
    assert str(Probe(depth=4)) == "Probe(depth=4)"


def test_a_whole_number_is_a_fine_float_and_hashes_the_same():
    assert Probe(branch_scale=2).key() == Probe(branch_scale=2.0).key()


def test_some_keys_are_frozen():
    """These name files on people's disks: a change here means that all finished runs are done again."""
    assert Probe().key() == "264986197d0f05b3"
    assert Probe(depth=3, inner=Inner(learning_rate=0.5)).key() == "2aa9fa78ff28cab1"


def test_a_new_option_with_a_default_leaves_old_keys_alone():
    class Old(Settings):
        depth: int = option(10, "blocks")

    class New(Settings):
        width: int = option(5, "units")
        depth: int = option(10, "blocks")

    New.__name__ = "Old"
    assert New(depth=3).key() == Old(depth=3).key()
    assert New(depth=3, width=6).key() != Old(depth=3).key()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Probe.from_json({"dept": 3}), "no setting 'dept'. Did you mean depth"),
        (lambda: Probe.from_json({"inner": {"lr": 1}}), "Inner has no setting 'lr'"),
        (lambda: Probe.from_json([1]), "wants a JSON object, got list"),
        (lambda: Probe.from_json({"depth": "three"}), "Probe.depth must be int; got 'three'"),
        (lambda: Probe(depth=2.5), "Probe.depth must be int; got 2.5"),
        (lambda: Probe(depth=True), "Probe.depth must be int; got True"),
        (lambda: Probe(law="cauchy"), "must be one of gaussian, uniform; got 'cauchy'"),
        (lambda: Probe(widths=3), "must be a list of values; got 3"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        Probe().depth = 3  # type: ignore[misc]
