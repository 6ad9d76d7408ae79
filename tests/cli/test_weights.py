import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from skiplens.base.errors import BrokenFileError, InvalidInputError, UnsafeFileError
from skiplens.cli.models import load_weights


def trained() -> nn.Module:
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, 5.0)
    return model


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"state_dict": state, "epoch": 3}])
def test_a_checkpoint_is_loaded(tmp_path, wrap):
    path = tmp_path / "weights.pt"
    torch.save(wrap(trained().state_dict()), path)
    assert (load_weights(nn.Linear(3, 2), path).weight == 5.0).all()


def test_safetensors_are_loaded(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(trained().state_dict(), path)
    assert (load_weights(nn.Linear(3, 2), path).weight == 5.0).all()


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod.", "net."])
def test_weights_of_a_wrapped_model_are_loaded(tmp_path, wrapper):
    path = tmp_path / "weights.pt"
    torch.save({wrapper + name: value for name, value in trained().state_dict().items()}, path)
    state = torch.load(path, weights_only=True)
    save_file(state, tmp_path / "weights.safetensors")
    for name in ("weights.pt", "weights.safetensors"):
        assert (load_weights(nn.Linear(3, 2), tmp_path / name).weight == 5.0).all()


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code was executed')",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    path = tmp_path / "bomb.pt"
    torch.save({"state_dict": Bomb()}, path)
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    with pytest.raises(UnsafeFileError, match=r"bomb\.pt was refused: loading it would run code"):
        load_weights(model, path)
    assert torch.equal(model.weight, before)


def test_a_whole_pickled_model_is_refused(tmp_path):
    torch.save(trained(), tmp_path / "model.pt")
    with pytest.raises(UnsafeFileError, match=r"Save the weights alone, with torch.save\(model.state_dict\(\), FILE\)"):
        load_weights(nn.Linear(3, 2), tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(2, 3)}, "missing: bias"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(2), "extra": torch.ones(1)}, "unknown: extra"),
        ({"weight": torch.ones(4, 3), "bias": torch.ones(2)}, r"weight has shape \(4, 3\) instead of \(2, 3\)"),
        ({"weight": "words"}, "does not hold a mapping from names to tensors"),
        ([1, 2], "does not hold a mapping from names to tensors"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(tmp_path, content, message):
    torch.save(content, tmp_path / "w.pt")
    model = trained()
    with pytest.raises(InvalidInputError, match=message):
        load_weights(model, tmp_path / "w.pt")
    assert (model.weight == 5.0).all()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_truncated_file_is_named(tmp_path, name):
    path = tmp_path / name
    save = save_file if name.endswith("safetensors") else torch.save
    save(trained().state_dict(), path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises((BrokenFileError, UnsafeFileError), match=name):
        load_weights(nn.Linear(3, 2), path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"There is no file of weights .*absent\.pt"):
        load_weights(nn.Linear(3, 2), tmp_path / "absent.pt")
