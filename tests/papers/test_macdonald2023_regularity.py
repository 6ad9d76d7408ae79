"""Every item of the study except those that train on images, at the smallest preset."""

from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.study import choose

ITEMS = ["fig1", "fig2", "thm2_3", "thm4_5", "thm4_7", "thm5_1"]
ALL_ITEMS = {*ITEMS, "fig3", "fig4", "fig5", "table1", "table2", "fig6", "table3"}
UNDECIDED_AT_SMOKE = {
    *(f"fig2/{name}" for name in ("block1", "block2_projection", "block2_average_pool", "block2_isometric_pool")),
    *(f"fig2/{name}" for name in ("composite", "composite_at_start", "parameters")),
    *(f"fig2/{name}" for name in ("loss_residual", "loss_residual_later", "loss_average_pool")),
    "thm4_5/plain",
}
"""Too few seeds; everything else is decided by the smallest preset, whatever the seed."""

CORRECTED = {
    "fig2/pool",
    *(f"thm4_5/{name}" for name in ("activation", "batch_norm", "entry_curvature")),
    "thm4_7/first_layer",
    *(f"thm5_1/{name}" for name in ("any_start_logistic", "any_start_square", "infimum")),
    *(f"thm5_1/{name}" for name in ("printed_bound", "rate_exponent", "descent_constant")),
}


def test_no_item_of_the_paper_is_missing():
    assert {item.name for _, item in choose("macdonald2023_regularity")} == ALL_ITEMS


def test_every_item_runs_at_the_smallest_preset(tmp_path, seed):
    chosen = [pair for name in ITEMS for pair in choose(f"macdonald2023_regularity/{name}")]
    found = reproduce(chosen, tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)
    words = {f"{verdict.item}/{verdict.claim}": verdict.verdict for verdict in found.verdicts}
    assert {name for name, word in words.items() if word == "not attempted"} == UNDECIDED_AT_SMOKE
    assert {name for name, word in words.items() if word == "corrected"} == CORRECTED
    assert "differs" not in words.values()
    assert not found.worse
