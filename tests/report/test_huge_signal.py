"""A network whose numbers leave float32 is told about; no lens, rule, figure or file ends in an error over it."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.plots.figure import Figure, Line, Reference
from skiplens.plots.plotly_json import plotly_json
from skiplens.report.lenses import find, section_of
from skiplens.tangent.reading import TangentReading
from tests.lens_cases import subject
from tests.networks import drawn

WIDTH = 8


class Block(nn.Module):
    """x + f(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(torch.relu(self.first(x)))


def residual(depth: int, size: float) -> nn.Sequential:
    return _scaled(nn.Sequential(*(Block() for _ in range(depth)), nn.Linear(WIDTH, 3)), size)


def plain(depth: int, size: float) -> nn.Sequential:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return _scaled(nn.Sequential(*layers, nn.Linear(WIDTH, 3)), size)


def _scaled(net: nn.Sequential, size: float) -> nn.Sequential:
    drawn(net).float()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(size * parameter[0].numel() ** 0.5 / max(float(parameter.norm()), 1e-30))
    return net


SLOW = {
    "1e19": plain(20, 30.0),
    "infinite": plain(40, 30.0),
    "residual 1e19": residual(12, 30.0),
    "residual infinite": residual(40, 30.0),
    "faded to zero": plain(30, 1e-3),
}


@pytest.mark.parametrize(
    ("net", "lenses"),
    [
        pytest.param(plain(3, 1e15), ("tangent",), id="few huge layers"),
        *(pytest.param(net, (), id=name, marks=pytest.mark.slow) for name, net in SLOW.items()),
    ],
)
def test_all_is_told_and_nothing_ends_in_an_error(net, lenses, tmp_path):
    data = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(0)).float(), torch.arange(8) % 3
    report = sl.inspect(net, data, lenses=lenses)
    assert not [problem for problem in report.problems if "should have foreseen" in str(problem)]
    assert report.write(tmp_path).is_file()
    assert sl.Report.load(tmp_path).verdict == report.verdict


def test_a_kernel_that_overflowed_has_no_eigenvalues():
    kernel = torch.tensor([[math.inf, 1.0], [1.0, 1.0]])
    targets, angles = torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0)
    reading = TangentReading(kernel=kernel, targets=targets, angles=angles, parameters=1, batch_coupled=False)
    assert bool(reading.eigenvalues.isnan().all()) and math.isnan(reading.condition_number)


def test_what_no_axis_has_is_left_out_of_the_page():
    marks = (Line((0.0, 1.0), (math.inf, 1.0)), Reference(math.inf, "limit"), Reference(2.0, "two"))
    drawing = plotly_json(Figure("name", "title", "caption", "x", "y", marks))
    assert drawing["data"][0]["y"] == [None, 1.0]
    assert [shape["y0"] for shape in drawing["layout"]["shapes"]] == [2.0]


@pytest.mark.slow
@pytest.mark.parametrize("extreme", [math.inf, -math.inf, math.nan, 3e38, 0.0, -1.0])
def test_every_rule_and_section_survives_every_number(extreme):
    looked_at = subject()
    readings = sl.inspect(looked_at.model, looked_at.batch).readings
    for reading in readings:
        values = {entry.name: getattr(reading, entry.name) for entry in dataclasses.fields(reading)}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        real = {name: value for name, value in tensors.items() if value.is_floating_point()}
        for name, value in real.items():
            changed = dataclasses.replace(reading, **{name: torch.full_like(value, extreme)})
            find([changed if other is reading else other for other in readings])
            section_of(changed)
        changed = dataclasses.replace(
            reading, **{name: torch.full_like(value, extreme) for name, value in real.items()}
        )
        find([changed if other is reading else other for other in readings])
        section_of(changed)
