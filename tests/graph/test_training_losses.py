import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, ModelSpecError
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from tests.tolerances import assert_close

OUTPUTS = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 0.5]], dtype=torch.float64)
CLASSES = torch.tensor([0, 1, 1])
VALUES = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], dtype=torch.float64)


class Gives(nn.Module):
    """Returns what it was made with."""

    def __init__(self, value) -> None:
        super().__init__()
        self.value = value

    def forward(self, inputs):
        return self.value


def value(name, targets, output=OUTPUTS):
    return LossFunction(name)(Gives(output), Batch(torch.zeros(3, 1), targets))


def test_losses_are_means_over_samples():
    squares = (OUTPUTS - VALUES).square()
    assert_close(value("mse", VALUES), squares.sum() / 6)
    assert_close(value("half_squared_error", VALUES), squares.sum() / 6)  # 2 · samples = samples · outputs here
    probabilities = OUTPUTS.exp() / OUTPUTS.exp().sum(1, keepdim=True)
    assert_close(value("cross_entropy", CLASSES), -probabilities[torch.arange(3), CLASSES].log().mean())


def test_half_squared_error_sums_over_outputs():
    wide, targets = torch.ones(4, 5), torch.zeros(4, 5)
    assert LossFunction("half_squared_error")(Gives(wide), Batch(torch.zeros(4, 1), targets)).item() == 2.5


def test_a_model_may_return_its_loss():
    assert value("model", CLASSES, {"loss": torch.tensor(2.0)}).item() == 2
    assert value("model", CLASSES, torch.tensor(3.0)).item() == 3
    with pytest.raises(InvalidInputError, match="it returned a dict without an entry 'loss'"):
        value("model", CLASSES, {})


def test_logits_are_found_in_what_a_model_returns():
    assert_close(value("mse", VALUES, {"hidden": VALUES * 9, "logits": OUTPUTS}), value("mse", VALUES))


def test_a_loss_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_loss.py").write_text("def build():\n    return lambda outputs, targets: outputs.sum()\n")
    assert_close(value("my_loss.py:build", VALUES), OUTPUTS.sum())
    with pytest.raises(ModelSpecError, match="no function 'biuld'"):
        value("my_loss.py:biuld", VALUES)
    (tmp_path / "no_loss.py").write_text("def build():\n    return 3\n")
    with pytest.raises(InvalidInputError, match="returned a int; wanted a loss"):
        value("no_loss.py:build", VALUES)


def test_wrong_losses_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"There is no loss 'crossentropy'\. Did you mean cross_entropy"):
        LossFunction("crossentropy")
    with pytest.raises(InvalidInputError, match=r"wants targets of the outputs' shape \(3, 2\), got \(3,\)"):
        value("mse", CLASSES)
    (tmp_path / "wide.py").write_text("def build():\n    return lambda outputs, targets: outputs\n")
    with pytest.raises(InvalidInputError, match=r"has shape \(3, 2\); wanted one number"):
        value("wide.py:build", VALUES)
    (tmp_path / "odd.py").write_text("def build():\n    return lambda outputs, targets: 3.0\n")
    with pytest.raises(InvalidInputError, match="is a float; wanted one number"):
        value("odd.py:build", VALUES)


def test_language_models_have_their_classes_last():
    scores = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(10).reshape(2, 5) % 7
    found = LossFunction("cross_entropy")(Gives(scores), Batch(torch.zeros(2, 1), targets))
    assert_close(found, torch.nn.functional.cross_entropy(scores.reshape(10, 7), targets.reshape(10)))


def test_ignored_targets_do_not_count():
    """The mean over all targets that count is not the mean of the batches' means."""
    targets = torch.tensor([0, -100, 1])
    function = LossFunction("cross_entropy")
    assert function.share(targets) == 2.0
    total = sum(function.total(OUTPUTS[i : i + 1], targets[i : i + 1]) for i in (0, 2))
    assert total / 2 == pytest.approx(value("cross_entropy", targets).item(), rel=1e-14)
