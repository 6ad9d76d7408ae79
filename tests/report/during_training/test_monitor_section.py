import math

import torch

from skiplens.plots.network_drawing import layout
from skiplens.report import Report
from skiplens.report.during_training.page import monitor_drawing
from skiplens.report.lenses import section_of
from tests.report.during_training.test_figures_monitor import reading


def test_the_section_tells_first_and_last():
    section = section_of(reading())
    assert section.sentence == (
        "The network was looked at 3 times between 0 and 20 updates; "
        "its effective depth grew from 1.00 to 2.50 branches."
    )
    facts = dict(section.facts)
    assert facts["largest eigenvalue"] == "8 → 9" and facts["drift of the tangent kernel"] == "0 → 0.4"
    costs = next(figure for figure in section.figures if figure.name == "cost_of_looking")
    assert "7 s beside 70 s of the run" in costs.caption and "looks" in facts, "each is told once"
    assert section.notes[:2] == ("A note.", "kernel was left out: No reason.")
    assert "curvature was due 1 more times" in section.notes[2] and len(section.notes) == 3
    assert len(section.figures) == 7


def test_a_depth_that_fell_was_seen_once_or_not_at_all():
    def sentence(depths):
        rows = torch.tensor(depths)
        return section_of(reading(measured={"mean_depth": rows, "coherent_depth": rows})).sentence

    assert "fell from 3.00 to 2.00" in sentence([3.0, math.nan, 2.0])
    assert "was seen once: 3.00 branches" in sentence([math.nan, 3.0, math.nan])
    assert section_of(reading(measured={})).sentence.endswith("20 updates.")
    empty = {"steps": torch.zeros(0, dtype=torch.int64), "losses": torch.zeros(0), "measured": {}, "costs": {}}
    assert section_of(reading(**empty, skipped={})).sentence == "The network was not looked at."


def test_a_number_seen_once_is_said_so():
    facts = dict(section_of(reading(measured={"weight_norm": torch.tensor([3.0, math.nan, math.nan])})).facts)
    assert facts["norm of the weights"] == "3 (seen once)"


def test_a_page_of_a_monitor_alone_tells_the_run_and_calls_nothing_healthy(tmp_path):
    energy = torch.tensor([[4.0, 4.0, 0.0], [1.0, 1.0, 2.0], [0.0, 2.0, 6.0]])
    depths = torch.tensor([0.5, 1.25, 1.75])
    watched = reading(
        measured={"mean_depth": depths, "coherent_depth": depths, "energy": energy}, block_names=("a", "b")
    )
    report = Report("Net", (watched,))
    assert report.verdict == section_of(watched).sentence
    page = report.save(tmp_path / "r.html").read_text().split("</main>")[0]
    assert page.count(report.verdict) == 1 and "Healthy" not in page and 'class="verdict severity-unknown"' in page
    drawing = monitor_drawing(watched)
    assert drawing.caption == "acts 1.8 blocks deep,\n0.5 at first" and drawing.spectrum == (0.0, 0.25, 0.75)
    assert [block.name for block in drawing.blocks] == ["a", "b"] and not any(s.role == "mark" for s in layout(drawing))
    assert "as thick as its share" not in page and "size of the signal" not in page, "nobody looked"
    assert monitor_drawing(reading(measured={})) is None


def test_many_looks_that_were_left_out_are_told_in_one_sentence():
    (told,) = reading(skipped={"curvature": 2, "depth": 3}, run_seconds=1000.0).budget_sentences
    assert "curvature 2× (" in told and "depth 3× (" in told and told.startswith("Looks that were due")
