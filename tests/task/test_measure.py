"""What the task lens measures, against closed forms."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import TooLargeError
from skiplens.graph.batch import Batch, take
from skiplens.task import measure_task
from skiplens.task.measure import _keys
from tests.budget_calls import least_memory
from tests.networks import Formula

GENERATOR = torch.Generator().manual_seed(5)
INPUTS = torch.randn(40, 6, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(5, (40,), generator=GENERATOR)
NUMBERS = torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64) + torch.tensor([0.0, 1.0, 2.0])


def model(outputs: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


def entropy(shares: torch.Tensor) -> float:
    return -sum(float(share) * math.log(share) for share in shares if share > 0)


@pytest.mark.parametrize(
    "loss",
    [None, "cross_entropy", F.cross_entropy, nn.CrossEntropyLoss()],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_cross_entropy_of_no_answer_and_of_a_guess(loss):
    reading = measure_task(model(), Batch(INPUTS, LABELS), loss)
    assert (reading.form, reading.classes, reading.answers) == ("classes", 5, "scores")
    assert reading.no_answer == pytest.approx(math.log(5), rel=1e-12)
    assert reading.guess == pytest.approx(entropy(torch.bincount(LABELS) / 40), rel=1e-9)
    assert reading.loss == pytest.approx(F.cross_entropy(model()(INPUTS), LABELS).item(), rel=1e-12)
    assert reading.counts.tolist() == [int((LABELS == index).sum()) for index in range(5)]


def test_classes_that_do_not_occur_leave_the_entropy_of_the_others():
    reading = measure_task(model(), Batch(INPUTS, LABELS.clamp_max(1)))
    assert reading.guess == pytest.approx(entropy(torch.bincount(LABELS.clamp_max(1)) / 40), rel=1e-9)


def test_class_weights_and_smoothing_are_in_the_guess():
    weight, smoothing = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64), 0.1
    counts = torch.bincount(LABELS).double() * weight
    shares = counts / counts.sum()
    reading = measure_task(model(), Batch(INPUTS, LABELS), nn.CrossEntropyLoss(weight))
    assert reading.guess == pytest.approx(entropy(shares), rel=1e-6)  # where the search stops
    smooth = (1 - smoothing) * torch.bincount(LABELS).double() / 40 + smoothing / 5
    reading = measure_task(model(), Batch(INPUTS, LABELS), nn.CrossEntropyLoss(label_smoothing=smoothing))
    assert reading.guess == pytest.approx(entropy(smooth), rel=1e-6)


def test_targets_that_do_not_count_are_left_out():
    labels = torch.where(torch.arange(40) < 20, -100, LABELS)
    reading = measure_task(model(), Batch(INPUTS, labels))
    assert reading.guess == pytest.approx(entropy(torch.bincount(LABELS[20:], minlength=5) / 20), rel=1e-9)
    assert reading.counts.sum() == 20


def test_squares_of_no_answer_and_of_a_guess():
    reading = measure_task(model(3), Batch(INPUTS, NUMBERS))
    assert reading.form == "numbers" and reading.classes == 0 and reading.counts.numel() == 0
    assert reading.no_answer == pytest.approx(NUMBERS.square().mean().item(), rel=1e-12)
    assert reading.guess == pytest.approx(NUMBERS.var(0, correction=0).mean().item(), rel=1e-12)
    assert reading.output_size == pytest.approx(model(3)(INPUTS).square().mean().sqrt().item(), rel=1e-12)


def test_binary_targets_leave_the_entropy_of_each_output():
    targets = (NUMBERS > 1).double()
    targets[:, 0] = 1  # whose entropy is zero
    expected = sum(entropy(torch.stack([share, 1 - share])) for share in targets.mean(0)) / 3
    reading = measure_task(model(3), Batch(INPUTS, targets), "binary_cross_entropy")
    assert reading.form == "binary" and reading.guess == pytest.approx(expected, rel=1e-9)


def test_language_models_have_one_guess_for_all_places():
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    reading = measure_task(net, Batch(tokens, tokens.roll(1, 1)))
    assert reading.guess == pytest.approx(entropy(torch.bincount(tokens.flatten(), minlength=7) / 30), rel=1e-5)
    assert math.isnan(reading.low) and math.isnan(reading.entry_size) and reading.head == ("1.weight", "1.bias")


def test_an_own_loss_is_searched_for_its_guess():
    reading = measure_task(model(3), Batch(INPUTS, NUMBERS), lambda outputs, targets: (outputs - targets).abs().mean())
    median = NUMBERS.median(0).values
    assert reading.form == "own" and math.isnan(reading.no_answer)
    assert math.isnan(reading.guess) or reading.guess >= (NUMBERS - median).abs().mean().item() - 1e-9
    smooth = measure_task(model(3), Batch(INPUTS, NUMBERS), lambda outputs, targets: (outputs - targets).pow(2).sum())
    assert smooth.guess == pytest.approx(40 * NUMBERS.var(0, correction=0).sum().item(), rel=1e-6)


def test_an_own_loss_over_places_is_searched_with_all_digits():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 12, (64, 32), generator=generator)
    inputs = torch.randn(64, 32, 4, generator=generator, dtype=torch.float32)
    own = lambda scores, targets: 2 * F.cross_entropy(scores.flatten(0, -2), targets.flatten())  # noqa: E731
    reading = measure_task(nn.Linear(4, 12, dtype=torch.float32), Batch(inputs, labels), own)
    shares = F.one_hot(labels, 12).double().mean(0)  # of each place, whose answer is its own
    assert reading.guess == pytest.approx(2 * float(torch.special.entr(shares).sum(1).mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("own", "targets", "form"),
    [
        (lambda scores, targets: F.cross_entropy(scores, targets), "labels", "classes"),
        (lambda scores, targets: -scores.log_softmax(1).gather(1, targets[:, None]).mean(), "labels", "classes"),
        (lambda scores, targets: F.cross_entropy(scores, targets, label_smoothing=0.1), "labels", "own"),
        (lambda scores, targets: F.nll_loss(scores, targets), "labels", "own"),
        (lambda outputs, targets: (outputs - targets).square().mean(), "numbers", "numbers"),
        (lambda outputs, targets: (outputs - targets).square().sum(), "numbers", "own"),
    ],
)
def test_a_function_that_gives_what_a_loss_of_torch_gives_is_taken_for_it(own, targets, form):
    net, batch = (model(5), Batch(INPUTS, LABELS)) if targets == "labels" else (model(3), Batch(INPUTS, NUMBERS))
    reading = measure_task(net, batch, own)
    assert reading.form == form
    if form != "own":
        named = measure_task(net, batch, "cross_entropy" if form == "classes" else "mse")
        assert reading.guess == named.guess and reading.loss == pytest.approx(named.loss, rel=1e-6)


def test_an_own_loss_of_more_than_a_tensor_or_without_a_bound_has_no_guess():
    two = Formula(lambda m, x: {"first": m.f(x), "second": m.f(x) * 2}, f=model(3))
    own = lambda outputs, targets: (outputs["second"] - targets).square().mean()  # noqa: E731
    reading = measure_task(two, Batch(INPUTS, NUMBERS), own)
    assert reading.loss > 0 and math.isnan(reading.guess)
    assert math.isnan(measure_task(model(3), Batch(INPUTS, NUMBERS), lambda outputs, targets: outputs.sum()).guess)


@pytest.mark.parametrize(
    ("end", "loss", "answers"),
    [
        (nn.Softmax(1), None, "probabilities"),
        (nn.LogSoftmax(1), None, "log_probabilities"),
        (nn.LogSoftmax(1), F.nll_loss, "log_probabilities"),
        (nn.Identity(), nn.NLLLoss(), "scores"),
        (nn.ReLU(), None, "cut_scores"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_the_outputs_are(end, loss, answers):
    reading = measure_task(nn.Sequential(model(), end), Batch(INPUTS, LABELS), loss)
    assert reading.answers == answers and reading.no_answer == pytest.approx(math.log(5), rel=1e-12)
    assert reading.guess == pytest.approx(entropy(torch.bincount(LABELS) / 40), rel=1e-9)


@pytest.mark.parametrize(
    "end",
    [nn.Identity(), nn.Flatten(0), nn.Unflatten(1, (1, 1))],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_sigmoid_is_seen_through_changes_of_shape_and_not_by_its_range(end):
    targets = (LABELS[:, None] > 2).double()
    squashed = nn.Sequential(model(1), nn.Sigmoid(), end)
    assert measure_task(squashed, Batch(INPUTS, targets), "binary_cross_entropy").answers == "probabilities"
    between = nn.Sequential(model(1), nn.Hardtanh(0.2, 0.8))
    assert measure_task(between, Batch(INPUTS, targets), "binary_cross_entropy").answers == "scores"


def test_inputs_are_measured_where_the_first_weights_take_them():
    inputs = 100 * INPUTS.abs()
    reading = measure_task(Formula(lambda m, x: m.f(x / 100), f=model()), Batch(inputs, LABELS))
    assert reading.high == pytest.approx(inputs.max().item()) and reading.mean == pytest.approx(inputs.mean().item())
    assert reading.entry_size == pytest.approx(INPUTS.square().mean().sqrt().item(), rel=1e-12)
    units = INPUTS.abs()
    assert reading.entry_common == pytest.approx(float(units.mean(0) @ units.mean(0) / units.square().sum(1).mean()))
    assert math.isnan(reading.change)


def test_named_inputs_of_which_some_are_tokens():
    net = Formula(lambda m, codes, x: m.e(codes) + m.f(x), e=nn.Embedding(9, 5), f=model())
    reading = measure_task(net, Batch({"codes": LABELS, "x": INPUTS}, LABELS))
    assert reading.low == pytest.approx(INPUTS.min().item()) and reading.head == ()


def test_copies_contradictions_and_the_least_loss():
    inputs = torch.cat([INPUTS[:8], INPUTS[:4], INPUTS[:2]])  # two groups of three, two of two
    labels = torch.tensor([0, 1, 2, 3, 0, 0, 0, 0, 1, 1, 2, 0, 1, 1])
    reading = measure_task(model(), Batch(inputs, labels))
    assert reading.copies == 6 and reading.contradictions == 3 + 2
    least = 3 * entropy(torch.tensor([1 / 3, 2 / 3])) + 2 * math.log(2)
    assert reading.floor == pytest.approx(least / (14 * entropy(torch.bincount(labels) / 14)), rel=1e-9)
    numbers = measure_task(model(1), Batch(inputs, labels[:, None].double()))
    spread = 3 * (2 / 9) + 2 * (9 / 4)  # 0, 1, 1 and 3, 0
    assert numbers.floor == pytest.approx(spread / (14 * labels.double().var(correction=0).item()), rel=1e-9)


def test_zero_has_no_sign_and_nan_is_no_copy():
    zeros = torch.tensor([[0.0, -0.0], [-0.0, 0.0], [0.0, 0.0], [float("nan"), 0.0], [float("nan"), 0.0]])
    keys = list(_keys(Batch(zeros, torch.arange(5))))
    assert len(set(keys[:3])) == 1 and len(set(keys)) == 3
    masked = Batch({"x": INPUTS, "mask": INPUTS > 0}, LABELS)
    assert len(set(_keys(masked))) == len(INPUTS)
    assert len(set(_keys(Batch(INPUTS.T, LABELS)))) == len(INPUTS)  # samples along another axis: nothing is known


def test_neighbours_know_more_than_chance_only_of_labels_that_inputs_explain():
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(3, (300,), generator=generator)
    inputs = torch.eye(6)[labels] + torch.randn(300, 6, generator=generator)
    shuffled = labels[torch.randperm(300, generator=generator)]

    def standing(targets, outputs=3):
        seen = Batch(inputs, targets)
        return measure_task(model(outputs), seen.first(40), seen=seen).neighbours

    assert standing(labels) > 5 and abs(standing(shuffled)) < 4
    assert standing(labels[:, None].double(), 1) > 5 and abs(standing(shuffled[:, None].double(), 1)) < 4
    assert math.isnan(measure_task(model(3), Batch(inputs[:255], labels[:255])).neighbours)


def test_a_scripted_model_is_seen_from_its_inputs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and still in use
        scripted = torch.jit.script(model())
    reading = measure_task(scripted, Batch(INPUTS, LABELS))
    assert reading.entry_size == pytest.approx(INPUTS.square().mean().sqrt().item(), rel=1e-12)
    assert reading.loss == pytest.approx(F.cross_entropy(model()(INPUTS), LABELS).item(), rel=1e-12)


def test_the_model_is_left_as_it_was():
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1), nn.Sigmoid()).double()
    before, random = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    measure_task(net, Batch(100 * INPUTS, (LABELS[:, None] > 2).double()), "binary_cross_entropy")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.training and torch.equal(random, torch.get_rng_state())
    assert not any(module._forward_hooks for module in net.modules()) and net[0].weight.grad is None


def test_spare_samples_are_those_that_were_read_anyway():
    batches = [(INPUTS[:10], LABELS[:10]), (INPUTS[10:], LABELS[10:])]
    assert take(iter(batches), 5, 64).samples == 10
    assert take(iter(batches), 12, 20).samples == 30 and take(batches, 12).samples == 12


@pytest.mark.parametrize("scale", [1.0, 100.0])  # the larger inputs are looked at twice
def test_samples_in_pieces_are_the_task_of_all_together(scale):
    net, data = model(), Batch(scale * INPUTS, LABELS)
    whole = measure_task(net, data)
    least = least_memory(lambda memory: measure_task(net, data, memory=memory))
    assert whole.head and whole.entry_common == whole.entry_common and (scale == 1.0) == math.isnan(whole.change)
    for memory in (least, 7 * least):
        found = measure_task(net, data, memory=memory)
        for name, value in whole.values().items():
            if isinstance(value, float):
                assert getattr(found, name) == pytest.approx(value, rel=1e-9, nan_ok=True), name
            elif not isinstance(value, torch.Tensor):
                assert getattr(found, name) == value
    with pytest.raises(TooLargeError, match=f"the least that does is {least} "):
        measure_task(net, data, memory=least - 1)
