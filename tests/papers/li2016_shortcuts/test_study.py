"""Every item of the paper is there, and those without images or grids of learning rates run at the smallest preset."""

import pytest

from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.study import choose

CERTAIN_AT_SMOKE = {
    "fig3": {"linear_decrease": "reproduced", "linear_end": "reproduced", "relu_end": "reproduced"},
    "fig4": {"two_shortcut": "reproduced", "xavier": "reproduced", "orthogonal_slower": "reproduced"},
    "fig5": {},
    "fig6": {},
    "thm1": {
        "norm_law": "reproduced",
        "norm_bound": "reproduced",
        "step": "corrected",
        "lemma1": "reproduced",
        "lemma2": "reproduced",
        "shared_labels": "corrected",
    },
    "thm2": {
        "stationary_point": "reproduced",
        "zero_hessian": "reproduced",
        "two_shortcut_form": "reproduced",
        "strict_saddle": "reproduced",
        "copies": "reproduced",
        "one_shortcut_form": "reproduced",
        "local_minimum": "corrected",
        "explosion": "corrected",
        "biases": "corrected",
    },
}
"""What even the smallest preset decides, whatever the seed."""


def test_no_item_of_the_paper_is_missing():
    items = [item.name for _, item in choose("li2016_shortcuts")]
    assert items == ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "thm1", "thm2"]


LONG = {"fig4", "fig5", "fig6", "thm2"}  # each takes some seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all items: figures 5 and 6 share runs."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize(
    "item", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CERTAIN_AT_SMOKE]
)
def test_every_item_runs_at_the_smallest_preset(item, folder, seed):
    found = reproduce(choose(f"li2016_shortcuts/{item}"), folder, ReproductionEffort("smoke", seed))
    (result,) = found.results
    assert not result.problems
    assert result.figures and result.tables
    words = {verdict.claim: verdict.verdict for verdict in found.verdicts}
    assert {name: words[name] for name in CERTAIN_AT_SMOKE[item]} == CERTAIN_AT_SMOKE[item]
    assert "differs" not in words.values()
    assert not found.changed
