"""The callback in a real Trainer of transformers."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

import skiplens as sl
from skiplens.base.errors import InvalidInputError, MissingDependencyError
from tests.report.during_training.subjects import FREELY, network, samples

NORM = {"quantities": ("weight_norm",), "share": FREELY}


@pytest.fixture
def transformers():
    pytest.importorskip("accelerate")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # accelerate and the Trainer warn of what their dependencies will change
        yield pytest.importorskip("transformers")


def language_model(transformers):
    """A tiny GPT-2 with dropout, float32."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    config._attn_implementation = "eager"
    return transformers.GPT2LMHeadModel(config).float()


def texts():
    tokens = torch.randint(20, (8, 6), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "labels": tokens}


def trained(transformers, folder, callbacks=(), model=None):
    model = language_model(transformers) if model is None else model
    data = [{"input_ids": row, "labels": row} for row in texts()["input_ids"]]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-2,
    )
    made = [make(model) for make in callbacks]
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=made).train()
    return model.state_dict(), torch.rand(1)


@pytest.mark.slow
def test_a_trainer_is_followed_and_trains_as_without(transformers, tmp_path):
    plain, number = trained(transformers, tmp_path)
    monitors = []

    def follow(model):
        monitors.append(sl.Monitor(model, texts(), every=2, samples=3, products=6, share=FREELY))
        return monitors[0].hugging_face()

    watched, next_number = trained(transformers, tmp_path, [follow])
    assert all(torch.equal(plain[name], watched[name]) for name in plain) and torch.equal(number, next_number)
    reading = monitors[0].reading
    assert reading.steps.tolist() == [0, 2, 3] and reading.left_out == {}
    assert reading["energy"].shape == (3, 5)  # two layers of two blocks
    assert bool((reading["kernel_drift"][1:] > 0).all()) and "16 of 120 outputs" in " ".join(reading.notes)
    model = language_model(transformers).eval()
    with torch.no_grad():
        expected = float(model(**{name: tokens[:3] for name, tokens in texts().items()}).loss)
    assert float(reading["probe_loss"][0]) == pytest.approx(expected, rel=1e-5)


def test_another_model_is_refused(transformers, tmp_path):
    other = language_model(transformers)
    with pytest.raises(InvalidInputError, match="shares no parameter with the GPT2LMHeadModel of the monitor"):
        trained(transformers, tmp_path, [lambda _: sl.Monitor(other, texts(), **NORM).hugging_face()])


def test_one_process_of_many_looks(transformers):
    model = network()
    monitor = sl.Monitor(model, samples(), every=1, **NORM)
    callback = monitor.hugging_face()
    other, first = (SimpleNamespace(is_world_process_zero=zero, global_step=4) for zero in (False, True))
    for state in (other, first):
        callback.on_train_begin(None, state, None, model=model)
        callback.on_step_end(None, state, None)
        callback.on_train_end(None, state, None)
    assert monitor.reading.steps.tolist() == [4]


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monitor = sl.Monitor(network(), samples(), **NORM)
    with pytest.raises(MissingDependencyError, match=r"transformers is needed for a callback of its Trainer"):
        monitor.hugging_face()
