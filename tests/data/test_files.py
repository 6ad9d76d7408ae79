"""Data from files: what was stored is what comes back, from Python and on the command line."""

import sys
import types

import numpy as np
import PIL.Image
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from skiplens.base.errors import BrokenFileError, DataError, InvalidInputError, MissingDependencyError, UnsafeFileError
from skiplens.cli.flags import DataSettings
from skiplens.cli.models import build_model, data_for
from skiplens.data.files import SavedDataset, load_file
from skiplens.graph.batch import take

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 1])


def write(path, content):
    if path.suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in content.items()})
    elif path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("ending", ["npz", "pt", "pth", "safetensors"])
def test_arrays_by_name_are_inputs_and_targets(tmp_path, ending):
    batch = load_file(write(tmp_path / f"data.{ending}", {"x": X, "y": Y}))
    assert torch.equal(batch.inputs, X.to(batch.inputs)) and torch.equal(batch.targets, Y)
    same = data_for("my.py:model", DataSettings(data=str(tmp_path / f"data.{ending}")))
    assert torch.equal(same.inputs, batch.inputs) and torch.equal(same.targets, batch.targets)
    named = load_file(write(tmp_path / f"named.{ending}", {"left": X, "right": 2 * X, "labels": Y}))
    assert named.inputs.keys() == {"left", "right"} and torch.equal(named.targets, Y)
    alone = load_file(write(tmp_path / f"alone.{ending}", {"inputs": X}))
    assert alone.inputs.shape == X.shape and alone.targets.shape == (4, 0)


def test_a_pair_in_a_file_is_a_pair(tmp_path):
    assert torch.equal(load_file(write(tmp_path / "pair.pt", (X, Y))).targets, Y)
    np.savez(tmp_path / "plain.npz", X.numpy(), Y.numpy())
    assert torch.equal(load_file(tmp_path / "plain.npz").targets, Y)


@pytest.mark.parametrize(
    ("text", "inputs", "targets"),
    [
        ("a,b,c\n1,2,0\n3,4,2\n", [[1, 2], [3, 4]], torch.tensor([0, 2])),
        ("y;a;b\n0.5;1;2\n1;3;4\n", [[1, 2], [3, 4]], torch.tensor([0.5, 1.0])),
        ("1\t2\tcat\n3\t4\tant\n", [[1, 2], [3, 4]], torch.tensor([1, 0])),
    ],
)
def test_a_table_has_features_and_a_target(tmp_path, text, inputs, targets):
    (tmp_path / "table.csv").write_text(text, "utf-8")
    batch = load_file(tmp_path / "table.csv")
    assert batch.inputs.tolist() == inputs and torch.equal(batch.targets, targets)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("a,b\nred,1\n", InvalidInputError, "column 'a' of .* holds 'red', which is no number"),
        ("a,b\n,1\n", InvalidInputError, "column 'a' of .* holds ''"),
        ("a,b\n1,2\n1\n", BrokenFileError, "1 cells in line 3 and 2 columns"),
        ("", InvalidInputError, "0 rows and 0 columns"),
        ("a\n1\n", InvalidInputError, "1 rows and 1 columns"),
    ],
)
def test_a_table_that_is_none_is_one_sentence(tmp_path, text, error, message):
    (tmp_path / "table.csv").write_text(text, "utf-8")
    with pytest.raises(error, match=message):
        load_file(tmp_path / "table.csv")


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code was executed')",))


def test_files_that_are_broken_or_would_run_code_are_refused(tmp_path):
    torch.save({"x": Bomb()}, tmp_path / "bomb.pt")
    np.savez(tmp_path / "bomb.npz", x=np.array([{}], dtype=object))
    (tmp_path / "cut.npz").write_bytes(b"PK")
    for name, error in (("bomb.pt", UnsafeFileError), ("bomb.npz", BrokenFileError), ("cut.npz", BrokenFileError)):
        with pytest.raises(error, match=name):
            load_file(tmp_path / name)
    with pytest.raises(DataError, match="There is no file"):
        load_file(tmp_path / "absent.csv")
    (tmp_path / "text.txt").write_text("a b", "utf-8")
    with pytest.raises(InvalidInputError, match="Name a tokenizer"):
        load_file(tmp_path / "text.txt")


@pytest.fixture
def tokenizer(tmp_path):
    words = {f"w{number}": number for number in range(9)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="w0").save_pretrained(tmp_path / "words")
    return tmp_path / "words"


def test_a_text_becomes_tokens_that_ask_for_the_next_one(tmp_path, tokenizer):
    numbers = [number % 9 for number in range(300)]
    (tmp_path / "text.md").write_text(" ".join(f"w{number}" for number in numbers), "utf-8")
    batch = load_file(tmp_path / "text.md", tokenizer=tokenizer)
    assert batch.inputs["input_ids"].flatten().tolist() == numbers[:256]
    assert batch.targets[1].tolist() == [*numbers[129:256], -100]
    same = data_for("hf:gpt2", DataSettings(data=str(tmp_path / "text.md"), tokenizer=str(tokenizer)))
    assert torch.equal(same.targets, batch.targets)
    with pytest.raises(DataError, match=r"no folder .* with a tokenizer"):
        load_file(tmp_path / "text.md", tokenizer=tmp_path / "absent")
    with pytest.raises(InvalidInputError, match="holds no tokenizer that can be loaded"):
        load_file(tmp_path / "text.md", tokenizer=tmp_path)


def test_a_text_is_cut_to_the_positions_that_the_model_has(tmp_path, tokenizer):
    (tmp_path / "text.md").write_text(" ".join(f"w{number % 9}" for number in range(300)), "utf-8")
    model = build_model("hf:gpt2", 0, ("n_layer=1", "n_embd=8", "n_head=1", "vocab_size=9", "n_positions=12"))
    named = DataSettings(data=str(tmp_path / "text.md"), tokenizer=str(tokenizer))
    tokens = take(data_for("hf:gpt2", named, model), 64).inputs["input_ids"]
    assert tokens.shape == (25, 12)
    model(tokens)  # an index out of range before


def test_images_of_several_sizes_get_the_one_that_a_model_of_a_hub_takes(tmp_path):
    for name, size in (("a/1.png", (30, 20)), ("b/2.png", (18, 38))):
        (tmp_path / name).parent.mkdir()
        PIL.Image.new("RGB", size, (9, 8, 7)).save(tmp_path / name)
    options = ("hidden_size=8", "num_hidden_layers=1", "num_attention_heads=1", "intermediate_size=8")
    model = build_model("hf:vit", 0, (*options, "image_size=16", "patch_size=4"))
    images = take(data_for("hf:vit", DataSettings(data=str(tmp_path)), model), 2).inputs
    assert images.shape == (2, 3, 16, 16)


class Stored(list):
    column_names = ("text", "input_ids", "label", "id")


ROWS = Stored({"text": f"w1 w{n} w3", "input_ids": [n, n], "label": n % 2, "id": n} for n in range(6))


class Model(nn.Module):
    def forward(self, input_ids, attention_mask=None):
        return input_ids


@pytest.mark.parametrize("content", [ROWS, {"test": [], "train": ROWS}], ids=["rows", "splits"])
def test_a_saved_data_set_has_the_columns_that_the_model_takes(tmp_path, monkeypatch, tokenizer, content):
    stand_in = types.SimpleNamespace(load_from_disk=lambda folder: content)
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    settings = DataSettings(data=f"hf:{tmp_path}")
    batch = take(data_for("my.py:model", settings, Model()), 6)
    assert batch.inputs.keys() == {"input_ids"} and torch.equal(batch.inputs["input_ids"][:, 0] % 2, batch.targets)
    read = take(SavedDataset(str(tmp_path), tokenizer=str(tokenizer), taken=("input_ids", "attention_mask")), 6)
    assert read.inputs["input_ids"].shape == (6, 3) and read.inputs["attention_mask"].all()
    with pytest.raises(InvalidInputError, match="the model takes none"):
        SavedDataset(str(tmp_path), taken=("pixels",))


def test_a_saved_data_set_without_its_package_or_folder_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match="datasets is needed for reading the saved data set"):
        SavedDataset(str(tmp_path))

    def broken(folder):
        raise FileNotFoundError("no dataset_info.json")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_from_disk=broken))
    with pytest.raises(BrokenFileError, match="holds no data set that was saved: no dataset_info"):
        SavedDataset(str(tmp_path))
    with pytest.raises(DataError, match="There is no folder"):
        SavedDataset(str(tmp_path / "absent"))


def test_images_of_several_sizes_are_brought_to_one_size(tmp_path):
    for name, size in (("small", 6), ("large", 9)):
        (tmp_path / name).mkdir()
        PIL.Image.new("RGB", (size, size + 1)).save(tmp_path / name / "image.png")
    settings = DataSettings(data=str(tmp_path), image_size=5)
    assert take(data_for("my.py:model", settings), 2).inputs.shape == (2, 3, 5, 5)
    with pytest.raises(DataError, match=r"The images have different sizes: .*\(--image-size\)"):
        take(data_for("my.py:model", DataSettings(data=str(tmp_path))), 2)
