from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.loss import loss_rule, returned_loss
from tests.networks import noise

SCORES, LABELS = noise(6, 4), torch.tensor([0, 3, 1, 1, 2, 0])


def combined(rule, scores, targets, size):
    """The loss of all samples from the totals and shares of batches of `size`."""
    batches = list(zip(scores.split(size), targets.split(size), strict=True))
    divisor = sum(rule.share(y) for _, y in batches) or 1.0
    return sum(rule.total(x, y) for x, y in batches).item() / divisor


@pytest.mark.parametrize("size", [6, 4, 1])
@pytest.mark.parametrize(
    "module",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(label_smoothing=0.2),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64), ignore_index=2),
        nn.CrossEntropyLoss(ignore_index=1),
        nn.NLLLoss(ignore_index=1),
    ],
    ids=str,
)
def test_losses_of_classes_add_up_also_with_weights_and_ignored_targets(module, size):
    scores = SCORES.log_softmax(1) if isinstance(module, nn.NLLLoss) else SCORES
    assert combined(loss_rule(module), scores, LABELS, size) == pytest.approx(module(scores, LABELS).item(), rel=1e-12)


@pytest.mark.parametrize("size", [6, 4])
@pytest.mark.parametrize("module", [nn.MSELoss(), nn.L1Loss(reduction="sum"), nn.KLDivLoss(reduction="batchmean")])
def test_losses_of_numbers_add_up(module, size):
    targets = noise(6, 4, seed=1).softmax(1)
    assert combined(loss_rule(module), SCORES, targets, size) == pytest.approx(
        module(SCORES, targets).item(), rel=1e-12
    )


def test_probabilities_as_targets():
    targets = noise(6, 4, seed=1).softmax(1)
    expected = F.cross_entropy(SCORES, targets).item()
    assert combined(loss_rule("cross_entropy"), SCORES, targets, 4) == pytest.approx(expected, rel=1e-12)


def test_classes_may_stand_last_as_in_language_models():
    scores, labels = noise(3, 5, 4), torch.randint(0, 4, (3, 5), generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(scores.reshape(15, 4), labels.reshape(15)).item()
    for loss in ("cross_entropy", nn.CrossEntropyLoss()):
        rule = loss_rule(loss)
        assert combined(rule, scores, labels, 2) == pytest.approx(expected, rel=1e-12)
        assert rule.plain(scores, labels).item() == pytest.approx(expected, rel=1e-12)
        assert combined(rule, scores.movedim(2, 1), labels, 2) == pytest.approx(expected, rel=1e-12)


def test_torch_losses_look_at_the_logits_and_other_functions_at_everything():
    outputs = {"logits": SCORES, "other": LABELS}
    assert loss_rule(F.cross_entropy).plain(outputs, LABELS) == F.cross_entropy(SCORES, LABELS)
    assert loss_rule("mse").plain(outputs, SCORES) == 0
    assert loss_rule(lambda given, targets: given["logits"].sum()).plain(outputs, LABELS) == SCORES.sum()


def test_which_losses_are_likelihoods():
    assert all(loss_rule(name).is_likelihood for name in ("cross_entropy", "mse", "binary_cross_entropy"))
    assert not loss_rule(nn.NLLLoss()).is_likelihood
    assert not loss_rule(F.cross_entropy).is_likelihood


def test_refused_losses():
    with pytest.raises(InvalidInputError, match=r"no loss called 'cross-entropy'.*cross_entropy"):
        loss_rule("cross-entropy")
    with pytest.raises(InvalidInputError, match=r"loss is of type int; hand over a name \(cross_entropy, mse"):
        loss_rule(3)


def test_losses_that_models_return():
    loss = torch.tensor(2.0)
    for outputs in (loss, (loss, SCORES), {"loss": loss, "logits": SCORES}, SimpleNamespace(logits=SCORES, loss=loss)):
        assert returned_loss(outputs) == 2
    with pytest.raises(
        InvalidInputError, match=r"returned a tensor of shape \(6, 4\). Hand over a loss, or inputs with"
    ):
        returned_loss(SCORES)
    with pytest.raises(InvalidInputError, match=r"a dict without an entry 'loss'"):
        returned_loss({"logits": SCORES})
