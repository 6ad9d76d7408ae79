import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.papers.reproduction import recorded_verdicts
from skiplens.papers.study import PRESETS, Judgement, choose, claims, studies
from skiplens.sweeps.run import Run


def test_all_a_study_or_an_item():
    everything = choose("all")
    assert [(study.name, item.name) for study, item in choose("littwin2020_tangent/fig2")] == [
        ("littwin2020_tangent", "fig2")
    ]
    assert set(choose("littwin2020_tangent")) <= set(everything)
    assert len(everything) == sum(len(study.items) for study in studies())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("littwin2020_tangents", r"There is no study 'littwin2020_tangents'. Did you mean littwin2020_tangent\b"),
        ("littwin2020_tangent/fig1", r"has no item 'fig1'. Did you mean fig"),
        ("", "There is no study ''"),
    ],
)
def test_unknown_names_offer_the_nearest(target, message):
    with pytest.raises(InvalidInputError, match=message):
        choose(target)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_item_has_runs_and_claims_with_names_of_their_own(preset):
    for study, item in choose("all"):
        runs = item.runs(preset, 0)
        on_imagenet = study.name == "macdonald2023_regularity" and item.name in ("fig6", "table3")
        assert runs or preset != "smoke" or on_imagenet, "only larger presets may lack data on this machine"
        assert all(isinstance(run, Run) for run in runs)
        drawn = {run.key for run in runs if hasattr(run.settings, "seed")}  # closed forms have none
        assert drawn.isdisjoint({run.key for run in item.runs(preset, 1)}), "the seed is a setting"
        names = [claim.name for claim in item.claims]
        assert names and len(set(names)) == len(names), (study.name, item.name)


@pytest.mark.parametrize("preset", ["smoke", "laptop"])
def test_every_claim_is_recorded(preset):
    claims = {f"{study.name}/{item.name}/{claim.name}" for study, item in choose("all") for claim in item.claims}
    assert set(recorded_verdicts(preset)) == claims, "record them: python tools/record_verdicts.py FOLDER"


def test_one_judge_decides_each_row_of_claims_with_what_the_row_gives_it():
    def judge(readings, place, factor):
        return Judgement("reproduced", factor * readings[place])

    first, second = claims(judge, ("a", "A.", "Eq. 1", "2", 0, 2.0), ("b", "B.", "Eq. 2", "30", 1, 3.0))
    assert (first.name, first.statement, first.printed_at, first.paper) == ("a", "A.", "Eq. 1", "2")
    assert (second.name, second.statement, second.printed_at, second.paper) == ("b", "B.", "Eq. 2", "30")
    assert [one.judge([1.0, 10.0]).ours for one in (first, second)] == [2.0, 30.0]
