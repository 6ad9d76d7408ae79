"""`loss=` reaches every lens and section that uses a loss: a Huber loss against dense automatic differentiation."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.jacobians.hypotheses.report import HypothesesReading
from skiplens.report import RaceOptions
from skiplens.report.verification_reading import VerificationReading
from tests.networks import drawn, noise
from tests.report import planted

DATA = (noise(10, 3), noise(10, 2, seed=1))


def gentle(outputs, targets):
    """Huber's loss written out: quadratic below 0.3, linear above, a mean over samples."""
    error = (outputs - targets).abs()
    return torch.where(error < 0.3, 0.5 * error**2, 0.3 * (error - 0.15)).mean()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x + self.second(torch.tanh(self.first(x))))


def model():
    return drawn(Residual().double())


LOSS = float(gentle(model()(DATA[0]), DATA[1]).detach())


def dense_hessian(net, loss):
    names = [name for name, _ in net.named_parameters()]

    def value(*parameters):
        return loss(torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), DATA[0]), DATA[1])

    blocks = torch.autograd.functional.hessian(value, tuple(net.parameters()))
    sizes = [parameter.numel() for parameter in net.parameters()]
    return torch.cat(
        [torch.cat([blocks[i][j].reshape(sizes[i], -1) for j in range(len(sizes))], 1) for i in range(len(sizes))]
    )


@pytest.fixture(scope="module")
def report():
    return sl.inspect(model(), DATA, lenses=["curvature", "convergence"], loss=gentle)


def test_the_curvature_is_that_of_the_loss(report):
    reading, values = report.reading(sl.HessianSpectrum), torch.linalg.eigvalsh(dense_hessian(model(), gentle))
    assert reading.method == "exact" and reading.loss == pytest.approx(LOSS)
    torch.testing.assert_close(reading.eigenvalues, values, rtol=1e-9, atol=1e-12)  # rounding of flat directions
    assert reading.provenance.settings["loss"] == "gentle"
    curvature = next(section for section in report.sections() if section.title == "Curvature of the loss")
    assert "loss (gentle)" in dict(curvature.facts)


def test_hypotheses_about_a_loss_that_is_not_known_cannot_be_decided(report):
    reading = report.reading(HypothesesReading)
    assert reading.loss == "gentle" == reading.provenance.settings["loss"]
    undecided = [label for label, verdict in zip(reading.labels, reading.verdicts, strict=True) if "decided" in verdict]
    known = sl.inspect(model(), DATA, lenses=["convergence"], loss=F.huber_loss).reading(HypothesesReading)
    decided = [label for label, verdict in zip(known.labels, known.verdicts, strict=True) if "decided" not in verdict]
    assert known.loss == "Huber loss" and set(undecided) & set(decided)


@pytest.mark.parametrize("loss", [None, "mse", nn.MSELoss(), F.mse_loss])
def test_names_modules_and_functions_of_one_loss_are_one(loss):
    reading = sl.inspect(model(), DATA, lenses=["curvature"], loss=loss).reading(sl.HessianSpectrum)
    values = torch.linalg.eigvalsh(dense_hessian(model(), F.mse_loss))
    torch.testing.assert_close(reading.eigenvalues, values, rtol=1e-9, atol=1e-12)  # rounding of flat directions


def test_a_comparison_is_of_the_loss():
    found = sl.compare({"a": model(), "b": drawn(Residual().double(), 1)}, DATA, lenses=["curvature"], loss=gentle)
    losses = next(number for number in found.numbers if number.label == "loss").values
    assert float(losses[0]) == pytest.approx(LOSS)


def test_networks_race_with_the_loss():
    net, (inputs, classes) = planted.dead(), planted.data()
    data = inputs, F.one_hot(classes, planted.CLASSES).to(inputs)
    options = RaceOptions(steps=2, seeds=2, samples=64, learning_rates=(0.01,))
    found = sl.verify(sl.inspect(net, data, lenses=["structure"]), net, data, loss=gentle, options=options)
    proof = next(reading for reading in found.readings if isinstance(reading, VerificationReading))
    assert proof.provenance.settings["loss"] == "gentle" and proof.losses_before.shape == (2, 2)
    # The mean over steps of mini-batches is near the loss of all samples: 0.01 hardly moves the network.
    outputs = net(data[0][:64]).detach()
    whole = float(gentle(outputs, data[1][:64]))
    assert float(proof.losses_before.mean()) == pytest.approx(whole, rel=0.3)
    assert not math.isclose(whole, float(F.mse_loss(outputs, data[1][:64])), rel_tol=0.5)


def test_a_monitor_follows_the_curvature_of_the_loss():
    reading = sl.Monitor(model(), DATA, loss=gentle, quantities=("curvature",), products=60).start().reading
    values = torch.linalg.eigvalsh(dense_hessian(model(), gentle))
    assert float(reading["largest_eigenvalue"]) == pytest.approx(float(values[-1]), rel=1e-4)
    assert float(reading["smallest_eigenvalue"]) == pytest.approx(float(values[0]), rel=1e-4)
    assert float(reading["probe_loss"]) == pytest.approx(LOSS)
    assert reading.provenance.settings["loss"] == "gentle"


def failing(outputs, targets):
    raise ValueError("labels of class 7")


class Failing:
    def __call__(self, outputs, targets):
        return failing(outputs, targets)


class FailingModule(nn.Module):
    def forward(self, outputs, targets):
        return failing(outputs, targets)


@pytest.mark.parametrize("loss", [failing, Failing(), FailingModule()])
def test_the_error_of_a_loss_is_reported_as_that_of_the_loss(loss):
    report = sl.inspect(model(), DATA, lenses=["curvature"], loss=loss)
    name = getattr(loss, "__name__", type(loss).__name__)
    assert [(problem.lens, problem.message) for problem in report.problems] == [
        (lens, f"The loss {name!r} cannot be taken: ValueError: labels of class 7.") for lens in ("layers", "curvature")
    ]


def test_losses_that_do_not_exist():
    for call in (
        lambda loss: sl.inspect(model(), DATA, loss=loss),
        lambda loss: sl.compare({"a": model(), "b": model()}, DATA, loss=loss),
        lambda loss: sl.verify(sl.Report("empty", ()), model(), DATA, loss=loss),
        lambda loss: sl.Monitor(model(), DATA, loss=loss),
    ):
        with pytest.raises(InvalidInputError, match=r"no loss called 'mes'.*mse"):
            call("mes")
        with pytest.raises(InvalidInputError, match="loss is of type int"):
            call(3)
