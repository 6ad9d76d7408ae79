"""What a beginner types: flags that come twice, a model instead of its builder, data of the wrong kind or none."""

import numpy as np
import pytest
import torch

from skiplens.cli.flags import DataSettings
from skiplens.cli.models import build_model, data_for
from skiplens.data.files import LENGTH

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self, depth=2, width=8):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))
    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x
net = Net(depth=4)
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(6, 3)).astype("f"), y=np.arange(6) % 3)
    np.save(tmp_path / "d.npy", np.ones((6, 3)))
    return tmp_path


def test_a_flag_of_several_values_may_come_several_times(ran, written):
    words = ["inspect", f"{written}/mine.py:Net", "--data", written / "d.npz", "--out", written / "out", "--json"]
    twice = ran(*words, "--set", "depth=3", "--set", "width=3", "--lens", "structure", "--lens", "signal")
    joined = ran(*words, "--set", "depth=3,width=3", "--lens", "structure,signal")
    for status, out, _ in (twice, joined):
        assert status == 0 and '"layers.2"' in out and '"layers.3"' not in out


def test_a_model_may_be_named_itself(written):
    assert len(build_model(f"{written}/mine.py:net").layers) == 4


def test_digits_that_nobody_named_are_told(ran, written):
    status, _, err = ran("inspect", f"{written}/mine.py:Net", "--out", written / "out")
    assert status == 2 and "the sample digits, 1 × 28 × 28, since --data names no other" in err
    assert ran("inspect", "zoo:default", "--lens", "structure", "--out", written / "out")[2].count("digits") == 0


def test_a_file_of_another_kind_is_told_of_those_that_are_read(ran, written):
    status, _, err = ran("inspect", f"{written}/mine.py:Net", "--data", written / "d.npy", "--out", written / "out")
    assert status == 2 and "file of a kind that is not read here; wanted .npz, .pt" in " ".join(err.split())


def test_a_branch_that_is_named_as_a_block_is_told_from_the_module_that_adds(ran, written):
    words = ["--set", "width=3", "--data", written / "d.npz", "--out", written / "out", "--lens", "structure"]
    _, out, err = ran("inspect", f"{written}/mine.py:Net", *words, "--blocks", "layers.0")
    assert "Name the module whose forward pass adds, not that of the branch" in " ".join((out + err).split())


def test_texts_that_are_cut_are_told(tmp_path, capfd, monkeypatch):
    class Tokenizer:
        def __call__(self, text, **options):
            return {"input_ids": list(range(len(text.split())))}

    monkeypatch.setattr("skiplens.data.files.load_tokenizer", lambda folder: Tokenizer())
    (tmp_path / "text.txt").write_text("word " * 300)
    settings = DataSettings(data=str(tmp_path / "text.txt"), tokenizer=str(tmp_path))
    model = torch.nn.Linear(2, 2)
    assert data_for("mine.py:net", settings, model).inputs["input_ids"].shape == (2, LENGTH)
    assert f"data: samples of at most {LENGTH} tokens, so longer texts are cut" in capfd.readouterr().err
