import sys

import pytest
import torch
from torch import nn

from skiplens.base.errors import ModelSpecError, SkiplensError
from skiplens.cli.models import build_model


def write(folder, text):
    path = folder / "my_model.py"
    path.write_text(text)
    return path


def test_a_function_of_a_file_is_called(tmp_path):
    path = write(tmp_path, "from torch import nn\ndef build(): return nn.Linear(2, 3)\n")
    assert isinstance(build_model(f"{path}:build"), nn.Linear)


def test_a_file_finds_its_neighbours_and_leaves_the_path_alone(tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("WIDTH = 7\n")
    path = write(
        tmp_path,
        "from torch import nn\nfrom neighbour_of_mine import WIDTH\ndef build(): return nn.Linear(WIDTH, 1)\n",
    )
    before = list(sys.path)
    assert build_model(f"{path}:build").in_features == 7
    assert sys.path == before
    del sys.modules["neighbour_of_mine"]


def test_a_function_of_a_package_is_called():
    assert isinstance(build_model("torch.nn:Identity"), nn.Identity)


def test_the_zoo_takes_options_and_a_seed():
    first, again, other = (build_model("zoo:shortcut_linear,units=2,width=3", seed) for seed in (1, 1, 2))
    assert [tuple(p.shape) for p in first.parameters()] == [(3, 3)] * 4
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet", "'resnet' does not name a model. Write zoo:NAME"),
        ("zoo:resnt", "The zoo has no network 'resnt'"),
        ("zoo:shortcut_linear,unit=2", "has no setting 'unit'. Did you mean units"),
        ("zoo:shortcut_linear,units=two", "must be int; got 'two'"),
        ("no/such/file.py:build", "There is no file no/such/file.py"),
        ("no_such_package.models:build", "There is no module 'no_such_package.models'"),
        ("torch.nn:Lineer", "torch.nn has no function 'Lineer'. Did you mean"),
        ("torch:__version__", "not a function"),
        ("torch.nn:", "does not name a function"),
        ("builtins:dict", "returned a dict, not a torch.nn.Module"),
    ],
)
def test_a_bad_name_gets_one_clear_error(spec, message):
    with pytest.raises(SkiplensError, match=message):
        build_model(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_package_at_all\n", "could not be loaded: ModuleNotFoundError"),
        ("def build(:\n", "could not be loaded: SyntaxError"),
        ("def build(): return 1 / 0\n", r"raised ZeroDivisionError: division by zero \(my_model.py, line 1\)"),
        ("def build(width): return width\n", "raised TypeError.*It is called without arguments"),
        ("build = 3\n", "is an int, not a function"),
    ],
)
def test_a_bad_file_says_what_happened_and_where(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ModelSpecError, match=message):
        build_model(f"{path}:build")
