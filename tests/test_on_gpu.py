"""Everything that measures or trains gives on a GPU what it gives on the processor."""

import copy
import math
from contextlib import nullcontext
from numbers import Real

import pytest
import torch

import skiplens as sl
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.readings.file import to_json
from skiplens.report.verification import RaceOptions
from skiplens.report.verification_reading import VerificationReading
from skiplens.training.callbacks import evaluate
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.lens_cases import CASES, subject
from tests.report import planted
from tests.report.during_training.subjects import FREELY, network, samples
from tests.tolerances import assert_close

pytestmark = [
    pytest.mark.gpu,
    # torch says so once when the first matrix product of a process on a GPU is one of a backward pass
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]

RELATIVE = 1e-6
"""Far above float64's rounding and far below any statistical error: other draws would be noticed."""

ROUNDED = {"nodes", "weights"}
"""Of a density by Lanczos: which of two coinciding nodes has the weight is a matter of rounding."""

SINGULAR = 1e12
"""A condition number above it is a quotient of roundings."""


def moved(looked_at: Subject) -> Subject:
    inputs, targets = looked_at.batch.inputs, looked_at.batch.targets
    return Subject(copy.deepcopy(looked_at.model).cuda(), Batch(inputs.cuda(), targets.cuda()), looked_at.name)


def assert_alike(found, expected, place=""):
    """Equal words and close numbers, whatever the nesting; what names the machine is passed over."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key in expected.keys() - {"provenance", "seconds"} - ROUNDED:
            assert_alike(found[key], expected[key], f"{place}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for index, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_alike(a, b, f"{place}[{index}]")
    elif isinstance(expected, Real) and not isinstance(expected, bool):
        singular = min(found, expected) > SINGULAR
        assert singular or math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=1e-9), (place, found, expected)
    else:
        assert found == expected, place


@pytest.mark.parametrize("lens", CASES, ids=lambda lens: lens.name)
@pytest.mark.parametrize("training", [False, True])
def test_every_lens_reads_the_same(lens, training):
    here = lens()(subject(training), Randomness(0), silent)
    there = lens()(moved(subject(training)), Randomness(0), silent)
    assert_alike(to_json(there), to_json(here))


def test_a_whole_report_comes_to_the_same_findings(tmp_path):
    net, (inputs, targets) = planted.exploding(), planted.data()
    here = sl.inspect(net, (inputs, targets))
    there = sl.inspect(copy.deepcopy(net).cuda(), (inputs.cuda(), targets.cuda()))
    assert [finding.rule for finding in there.findings] == [finding.rule for finding in here.findings]
    assert there.problems == here.problems
    pytest.importorskip("plotly")
    assert there.save(tmp_path / "report.html").stat().st_size > 10_000


def test_training_takes_the_same_steps():
    data = planted.data()
    recipe = Recipe(learning_rate=0.01, momentum=0.9, batch_size=32, steps=20)
    here, there = planted.dead(), planted.dead().cuda()
    there.load_state_dict(here.state_dict())
    losses = train(here, data, recipe).losses
    assert_close(train(there, tuple(tensor.cuda() for tensor in data), recipe).losses.cpu(), losses, RELATIVE)
    assert math.isclose(evaluate(there, tuple(t.cuda() for t in data)).loss, evaluate(here, data).loss, rel_tol=1e-6)


def test_a_landscape_has_the_same_heights():
    looked_at = subject()
    data = looked_at.batch.inputs, looked_at.batch.targets
    there = moved(looked_at)
    options = {"dimensions": 2, "points": 5, "radius": 0.3}
    here = sl.loss_landscape(looked_at.model, data, loss="cross_entropy", directions="random", **options)
    found = sl.loss_landscape(
        there.model, (there.batch.inputs, there.batch.targets), loss="cross_entropy", directions="random", **options
    )
    assert_close(found.losses.cpu(), here.losses.cpu(), RELATIVE)


def test_a_monitored_run_on_the_gpu_is_the_same_run():
    def trained(monitored):
        torch.manual_seed(7)
        net, (inputs, targets) = network().cuda(), samples()
        inputs, targets = inputs.cuda(), targets.cuda()
        descent = torch.optim.SGD(net.parameters(), lr=0.1)
        watch = sl.Monitor(net, (inputs, targets), every=2, share=FREELY) if monitored else nullcontext()
        with watch as monitor:
            for _ in range(5):
                descent.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(inputs), targets)
                loss.backward()
                descent.step()
                if monitor:
                    monitor.step(loss)
        return net.state_dict(), monitor

    plain, _ = trained(False)
    watched, monitor = trained(True)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    assert monitor.reading.steps.tolist() == [0, 2, 4, 5] and not monitor.reading.left_out


def test_a_change_is_proved_to_help():
    net, data = planted.exploding().cuda(), tuple(tensor.cuda() for tensor in planted.data())
    report = sl.inspect(net, data, lenses=["structure"])
    options = RaceOptions(steps=90, learning_rates=(0.1, 0.03, 0.01, 0.001))
    proved = sl.verify(report, net, data, options=options)
    (proof,) = [reading for reading in proved.readings if isinstance(reading, VerificationReading)][:1]
    assert proof.solved and proof.outcome == "helps"


def test_a_design_stands_where_its_data_are():
    inputs = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    found = sl.design(8, 3, depth=4, width=8, data=(inputs.cuda(), inputs[:, :3].argmax(1).cuda()), steps=80)
    assert {parameter.device.type for parameter in found.model.parameters()} == {"cuda"}
    assert math.isfinite(found.forecast.score)
