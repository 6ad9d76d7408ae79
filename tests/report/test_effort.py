from skiplens.report.comparison import COSTLY, LARGE, effort
from skiplens.report.lenses import LENSES


def test_small_models_get_every_lens():
    chosen = effort(LARGE, (), None)
    assert set(chosen.lenses) == set(LENSES) and (chosen.draws, chosen.samples) == (5, 16)


def test_large_models_go_without_the_costly_lenses_and_it_is_said():
    chosen = effort(LARGE + 1, (), None)
    assert set(LENSES) - set(chosen.lenses) == set(COSTLY) and (chosen.draws, chosen.samples) == (3, 8)
    assert any("1,000,001 parameters: curvature and tangent. Ask for them by name" in note for note in chosen.notes)


def test_what_was_asked_for_is_done():
    chosen = effort(LARGE + 1, ("curvature",), 7)
    assert chosen.lenses == ("curvature",) and chosen.draws == 7
    assert len(chosen.notes) == 1 and "7 times" in chosen.notes[0]
