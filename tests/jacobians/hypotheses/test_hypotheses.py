import pytest


@pytest.fixture
def reading():
    from skiplens.jacobians.hypotheses.report import HypothesesReading

    return HypothesesReading(
        model="Net",
        loss="cross-entropy",
        layers=("first: Affine, 3 -> 2",),
        labels=("S1", "S2", "R4"),
        statements=("smooth", "normalised", "independent"),
        verdicts=("fails", "holds", "cannot be decided"),
        numbers=(2.0, 0.0, None),
        meanings=("kinks", "free maps", "sigma(X)"),
        where=("act", "", "the data"),
        reasons=("relu has a kink", "all are", "too large"),
        changes=("Use tanh.", "", "Compute the rank by hand."),
        codes=('model.set_submodule("act", torch.nn.Tanh())', "", ""),
        conclusion="Nothing is certified: S1 fails.",
    )


def test_rows_and_labels(reading):
    assert reading.failing == ("S1",)
    assert reading.undecided == ("R4",)
    assert reading["S1"]["change"] == "Use tanh."
    assert [row["hypothesis"] for row in reading.rows()] == ["S1", "S2", "R4"]


def test_the_printed_table(reading):
    assert str(reading).splitlines() == [
        "Net with cross-entropy",
        "",
        "fails              smooth (S1) [kinks: 2]",
        "      at act: relu has a kink",
        "      -> Use tanh.",
        '        model.set_submodule("act", torch.nn.Tanh())',
        "holds              normalised (S2) [free maps: 0]",
        "cannot be decided  independent (R4)",
        "      at the data: too large",
        "      -> Compute the rank by hand.",
        "",
        "Nothing is certified: S1 fails.",
    ]


def test_sampled_numbers_stand_beside_the_bounds(reading):
    from dataclasses import replace

    sampled = replace(reading, sampled=(0.5, None, 0.25))
    assert "independent (R4) [sigma(X): not known, here 0.25]" in str(sampled)
    assert sampled["S1"]["sampled"] == 0.5
    assert "smooth (S1) [kinks: 2, here 0.5]" in str(sampled)
    assert "normalised (S2) [free maps: 0]" in str(sampled)
    assert reading["S1"]["sampled"] is None


def test_it_survives_a_file(reading, tmp_path):
    from skiplens.readings.file import read_file, write_file

    write_file(tmp_path / "reading.safetensors", reading)
    again = read_file(tmp_path / "reading.safetensors")
    assert again.values() == reading.values()
    assert str(again) == str(reading)
