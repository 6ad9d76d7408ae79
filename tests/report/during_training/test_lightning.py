"""The callback in a real Lightning Trainer, and what it makes of the states of others."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import skiplens as sl
from skiplens.base.errors import InvalidInputError, MissingDependencyError
from skiplens.readings.file import read_file
from tests.report.during_training.subjects import FREELY, network, samples

NORM = {"quantities": ("weight_norm",), "share": FREELY}


@pytest.fixture
def lightning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning warns of what its dependencies will change
        yield pytest.importorskip("pytorch_lightning")


def fitted(lightning, folder, callbacks=(), accumulate=1):
    """A network that a Trainer trained for two epochs of three batches, and the next random number."""

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, index):
            inputs, targets = batch
            return F.cross_entropy(self.network(inputs), targets)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(3)
    module = Module()
    made = [make(module) for make in callbacks]
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        default_root_dir=folder,
        callbacks=made,
    )
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples()), batch_size=4, shuffle=True)
    trainer.fit(module, data)
    return module.state_dict(), torch.rand(1)


def test_a_trainer_is_followed_and_trains_as_without(lightning, tmp_path):
    plain, number = fitted(lightning, tmp_path)
    monitors = []

    def follow(module):
        monitors.append(
            sl.Monitor(module.network, samples(), every=2, quantities=("weight_norm", "curvature"), share=FREELY)
        )
        return monitors[0].lightning()

    watched, next_number = fitted(lightning, tmp_path, [follow])
    assert all(torch.equal(plain[name], watched[name]) for name in plain) and torch.equal(number, next_number)
    reading = monitors[0].reading
    assert reading.steps.tolist() == [0, 2, 4, 6] and not reading.left_out
    assert reading.losses.isnan().tolist() == [True, False, False, False]


def test_gathered_batches_are_one_update(lightning, tmp_path):
    path = tmp_path / "run"
    callbacks = [lambda module: sl.Monitor(module.network, samples(), every=1, path=path, **NORM).lightning()]
    fitted(lightning, tmp_path, callbacks, accumulate=3)
    assert read_file(path).steps.tolist() == [0, 1, 2]


def test_another_model_is_refused(lightning, tmp_path):
    with pytest.raises(InvalidInputError, match=r"trains a Module that shares no parameter with the Residual"):
        fitted(lightning, tmp_path, [lambda module: sl.Monitor(network(), samples(), **NORM).lightning()])


def test_an_error_while_training_leaves_the_file(lightning, tmp_path):
    model, path = network(), tmp_path / "run"
    callback = sl.Monitor(model, samples(), every=1, path=path, **NORM).lightning()
    first, other = (SimpleNamespace(is_global_zero=zero, global_step=0) for zero in (True, False))
    callback.on_train_start(other, model)  # another process does not look
    assert not path.exists()
    callback.on_train_start(first, model)
    first.global_step = 1
    callback.on_train_batch_end(first, model, {"loss": torch.tensor(2.0)}, None, 0)
    first.global_step = 2
    callback.on_train_batch_end(first, model, None, None, 1)
    callback.on_exception(first, model, KeyboardInterrupt())
    reading = read_file(path)
    assert reading.steps.tolist() == [0, 1, 2] and reading.losses[1] == 2.0 and bool(reading.losses[2].isnan())


def test_without_lightning_it_says_what_to_install(monkeypatch):
    for name in [*sys.modules]:
        if name.split(".")[0] in ("lightning", "pytorch_lightning"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monitor = sl.Monitor(network(), samples(), **NORM)
    with pytest.raises(MissingDependencyError, match=r"a callback of Lightning.*skiplens\[lightning\]"):
        monitor.lightning()
