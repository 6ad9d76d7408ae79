"""The drawing of a network holds the numbers of its readings."""

import copy
import math

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.improvement.drawing import drawing_of, look
from skiplens.signal.reading import SignalReading
from tests.report.test_findings_section import finding
from tests.sample_readings import structure


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.f(x)


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(4, 2)).double()
    inputs = torch.randn(8, 4, dtype=torch.float64)
    return sl.inspect(model, (inputs, torch.arange(8) % 2), lenses=["paths", "signal"])


def test_shares_sizes_and_depth_are_those_of_the_readings(report):
    drawing = drawing_of(report.readings, ())
    signal = report.reading(SignalReading)
    ratio = signal.branch_ratios.double().square()
    assert [block.share for block in drawing.blocks] == pytest.approx((ratio / (1 + ratio)).tolist())
    assert drawing.signal[0] == pytest.approx(math.exp(float(signal.signal[0].log().mean())))
    assert len(drawing.signal) == len(drawing.gradient) == 4
    assert all(", shape 8 × 4, " in block.words for block in drawing.blocks)
    assert drawing.caption.endswith("not 3") and sum(drawing.spectrum) == pytest.approx(1)


def test_a_block_has_the_colour_of_its_worst_finding():
    found = [finding("critical", where=("a",)), finding("warning", where=("a", "b"))]
    assert [block.severity for block in drawing_of([structure(blocks=3)], found).blocks] == ["critical", "warning", ""]


def test_notes_and_findings_about_every_block_point_at_none():
    found = [finding("warning", where=("a", "b", "c")), finding("note", where=("a",))]
    assert not any(block.severity for block in drawing_of([structure(blocks=3)], found).blocks)
    assert drawing_of([structure(blocks=1)], found[:1]).blocks[0].severity == "warning"


def test_without_structure_there_is_no_drawing():
    assert drawing_of([], ()) is None


def test_a_plain_chain_is_drawn_by_its_layers():
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(4, 4), nn.Tanh())))
    found = sl.inspect(model, (torch.randn(8, 4), torch.arange(8) % 4), lenses=["signal"])
    drawing = drawing_of(found.readings, ())
    assert drawing.unit == "layers" and len(drawing.signal) == 4 and not drawing.blocks


def test_the_folder_has_the_drawing_and_the_card(report, tmp_path):
    report.write(tmp_path / "out")
    assert (tmp_path / "out/card.png").stat().st_size > 5000
    assert (tmp_path / "out/figures/network.svg").exists()
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert page.count('class="block"') == 3 and "3 residual blocks" in page


def test_a_network_is_drawn_without_its_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 8), nn.Dropout(0.9), nn.Linear(8, 3))
    batch = Batch(torch.randn(16, 4), torch.arange(16) % 3)
    drawn, still = (look(Subject(own, batch, "m"), 0) for own in (model.train(), copy.deepcopy(model).eval()))
    assert drawn["signal"] == still["signal"] and len(drawn["signal"]) == 3
