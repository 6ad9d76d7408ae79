"""Mixed precision, memory layout and CUDA graphs: other roads to the same numbers."""

import copy

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from skiplens.report.during_training.along import readings_along
from skiplens.report.during_training.measurer import MeasureAlong
from skiplens.training.callbacks import Callback
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.loop import train
from skiplens.training.passes import EagerPasses
from skiplens.training.recipe import Recipe, build_optimiser
from tests.networks import drawn, noise
from tests.tolerances import assert_close
from tests.training.networks import noisy_network, samples

SGD = Recipe(batch_size=8, epochs=2, learning_rate=0.05, momentum=0.9, seed=3)


def pictures(count: int = 22) -> tuple[torch.Tensor, torch.Tensor]:
    return noise(count, 3, 8, 8).to(torch.get_default_dtype()), torch.arange(count) % 4


def convolutional() -> nn.Module:
    """Convolutions, batch norm and a head."""
    network = drawn(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, stride=2, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 4),
        )
    )
    return network.to(torch.get_default_dtype())


class Interruption(Callback):
    """Ends the run with an error after a step, or never."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def after_step(self, moment):
        if moment.step == self.step:
            raise InterruptedError


def changed(recipe: Recipe, **values) -> Recipe:
    return Recipe.from_json({**recipe.to_json(), **values})


def losses(recipe: Recipe, device: str = "cpu") -> torch.Tensor:
    inputs, targets = pictures()
    return train(convolutional().to(device), (inputs.to(device), targets.to(device)), recipe).losses.cpu()


def test_the_layout_of_memory_changes_no_number():
    """Up to the order of sums: two dozen updates at most enlarge the roundings of single sums tenfold."""
    assert_close(losses(changed(SGD, channels_last=True)), losses(SGD), 1e-11)


def test_channels_last_is_the_layout_that_the_model_sees():
    seen = []

    def look(module, arguments):
        seen.append(arguments[0].is_contiguous(memory_format=torch.channels_last))

    model = convolutional()
    model[0].register_forward_pre_hook(look)
    train(model, pictures(), changed(SGD, channels_last=True))
    assert all(seen) and model[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("precision", "bits"), [("bfloat16", 8), ("float16", 11)])
def test_mixed_precision_rounds_and_no_more(precision, bits):
    """The first loss is off by a few roundings of the narrow type; weights and optimiser stay in full precision."""
    torch.set_default_dtype(torch.float32)
    model = convolutional()
    history = train(model, pictures(), changed(SGD, precision=precision))
    full = losses(SGD)
    assert 0 < abs(history.losses[0] - full[0]) < 8 * 2.0**-bits * full[0]
    assert history.finished and {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_gradients_are_free_of_the_scale_of_the_loss():
    torch.set_default_dtype(torch.float32)
    norms = {}
    for precision in ("full", "float16"):
        model = convolutional()

        class Gradients(Callback):
            def before_step(self, moment):
                norms[precision] = [p.grad.clone() for p in moment.model.parameters()]  # noqa: B023 - read at once

        train(model, pictures(8), Recipe(steps=1, precision=precision), callbacks=[Gradients()])
    for full, scaled in zip(norms["full"], norms["float16"], strict=True):
        assert_close(scaled, full, 0.05)  # gradients of a few roundings of 2^-11 each, summed over layers


def test_a_step_whose_scaled_gradients_overflow_is_left_out():
    torch.set_default_dtype(torch.float32)
    model, recipe = convolutional(), Recipe(precision="float16", learning_rate=0.1)
    optimiser = build_optimiser(model.parameters(), recipe)
    passes = EagerPasses(model, LossFunction("cross_entropy"), optimiser, recipe)
    passes.restore({**passes.state(), "scale": 1e38})
    before = copy.deepcopy(list(model.parameters()))
    passes.backward(passes.forward(Batch(*pictures(8))))
    passes.update()
    assert all(map(torch.equal, model.parameters(), before))
    assert passes.state()["scale"] < 1e38


def test_the_scale_of_the_loss_survives_an_interruption(tmp_path):
    torch.set_default_dtype(torch.float32)
    recipe = changed(SGD, precision="float16")
    whole = train(convolutional(), pictures(), recipe).losses

    checkpoint = Checkpoint(tmp_path / "run.ckpt", every_steps=3)
    with pytest.raises(InterruptedError):
        train(convolutional(), pictures(), recipe, callbacks=[Interruption(4)], checkpoint=checkpoint)
    kept = torch.load(tmp_path / "run.ckpt", weights_only=True)
    assert kept["passes"]["scale"] > 1
    again = train(convolutional(), pictures(), recipe, callbacks=[Interruption(None)], checkpoint=checkpoint)
    assert torch.equal(again.losses, whole)


def test_a_plain_checkpoint_says_nothing_about_scales(tmp_path):
    train(noisy_network(), samples(), Recipe(steps=2), checkpoint=tmp_path / "run.ckpt")
    assert "passes" not in torch.load(tmp_path / "run.ckpt", weights_only=True)


def test_a_graph_wants_a_gpu():
    with pytest.raises(InvalidInputError, match=r"cuda_graph wants a model on a GPU, this one is on the cpu\. Move"):
        train(noisy_network(), samples(), Recipe(steps=1, cuda_graph=True))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["full", "bfloat16", "float16"])
def test_a_replayed_graph_gives_the_numbers_of_single_kernels(precision):
    """Short last batches included; algorithms may differ, so up to roundings of the precision."""
    torch.set_default_dtype(torch.float64 if precision == "full" else torch.float32)
    recipe = changed(SGD, precision=precision, channels_last=True)
    tolerance = {"full": 1e-9, "bfloat16": 0.1, "float16": 0.02}[precision]
    assert_close(losses(changed(recipe, cuda_graph=True), "cuda"), losses(recipe, "cuda"), tolerance)


@pytest.mark.gpu
def test_a_replayed_graph_leaves_buffers_as_single_kernels_do():
    models = [convolutional().cuda() for _ in range(2)]
    for model, graph in zip(models, (False, True), strict=True):
        train(model, [tensor.cuda() for tensor in pictures()], changed(SGD, cuda_graph=graph))
    for plain, graphed in zip(models[0].buffers(), models[1].buffers(), strict=True):
        assert_close(graphed.double(), plain.double(), 1e-9)


@pytest.mark.gpu
def test_a_graphed_run_goes_on_from_its_checkpoint(tmp_path):
    recipe = changed(SGD, cuda_graph=True)
    data = tuple(tensor.cuda() for tensor in pictures())
    whole = train(convolutional().cuda(), data, recipe).losses
    checkpoint = Checkpoint(tmp_path / "run.ckpt", every_steps=1)
    with pytest.raises(InterruptedError):
        train(convolutional().cuda(), data, recipe, callbacks=[Interruption(4)], checkpoint=checkpoint)
    again = train(convolutional().cuda(), data, recipe, callbacks=[Interruption(None)], checkpoint=checkpoint)
    assert_close(again.losses, whole, 1e-9)


@pytest.mark.gpu
def test_measurements_between_replays_change_nothing():
    def norm(model):
        return sum(float(parameter.grad.norm()) for parameter in model.parameters())

    recipe = changed(SGD, cuda_graph=True)
    data = tuple(tensor.cuda() for tensor in pictures())
    plan = MeasureAlong(norm, at_steps=(0, 2), at_losses=(1.3, 1.2))
    measured = readings_along(convolutional().cuda(), data, recipe, plan).history.losses
    assert_close(measured, train(convolutional().cuda(), data, recipe).losses, 1e-9)
