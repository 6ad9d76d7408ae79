"""`--loss`: a name, or a function of a file or a package."""

import json

import pytest
import torch
from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.cli.models import loss_named

MINE = (
    "import torch\n"
    "from torch import nn\n"
    "class Block(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.branch = nn.Linear(3, 3)\n"
    "    def forward(self, x):\n"
    "        return x + self.branch(x)\n"
    "def build():\n"
    "    torch.manual_seed(0)\n"
    "    return nn.Sequential(Block(), Block(), nn.Linear(3, 1)).double()\n"
    "def data(): return torch.arange(24.).reshape(8, 3).double().sin(), torch.arange(8.).double()[:, None]\n"
    "def half(outputs, targets): return 0.5 * (outputs - targets).square().mean()\n"
    "number = 3\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_name_and_a_function_become_what_the_library_takes(file):
    assert loss_named(None) is None and loss_named("mse") == "mse" and loss_named("cross_entropy") == "cross_entropy"
    assert loss_named(f"{file}:half")(torch.ones(4), torch.zeros(4)) == 0.5
    assert loss_named("torch.nn.functional:huber_loss") is nn.functional.huber_loss
    assert isinstance(loss_named("torch.nn:HuberLoss"), nn.HuberLoss)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mze", r"There is no loss 'mze'. Did you mean mse.* A loss of your own is named path/file.py:function"),
        ("absent.py:loss", "There is no file absent.py"),
        ("no_such_package:loss", "There is no module 'no_such_package'"),
        ("torch.nn.functional:huber_los", "has no function 'huber_los'. Did you mean huber_loss"),
        ("mine.py:number", "is an int, not a function"),
        ("mine.py:", "does not name a function"),
    ],
)
def test_a_loss_that_is_none_is_told_before_any_work_is_done(file, words, message, monkeypatch, ran, tmp_path):
    monkeypatch.chdir(file.parent)
    with pytest.raises(SkiplensError, match=message):
        loss_named(words)
    for verb in (("inspect", "absent.py:build"), ("compare", "absent.py:build", "absent.py:other")):
        status, out, err = ran(*verb, "--loss", words, "--out", tmp_path / "o")
        assert status == 2 and err.startswith("error: ") and words.rpartition(":")[0] in err and out == ""
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_inspect_measures_and_verifies_with_it(file, ran, tmp_path, monkeypatch):
    """Half of the mean square has half of its curvature."""
    verified = []
    monkeypatch.setattr("skiplens.report.verify", lambda report, *_, loss, **__: verified.append(loss) or report)
    largest = {}
    for loss in ("mse", f"{file}:half"):
        flags = ("--loss", loss, "--lens", "curvature", "--verify", "--out", tmp_path / "o", "--json")
        status, out, err = ran("inspect", f"{file}:build", "--data", f"{file}:data", *flags)
        assert status == 0, err
        (reading,) = (reading for reading in json.loads(out)["readings"] if reading["kind"] == "curvature")
        largest[loss] = reading["values"]["largest"]
    assert largest[f"{file}:half"] == pytest.approx(largest["mse"] / 2, rel=1e-6)
    assert verified[0] == "mse" and verified[1].__name__ == "half"


@pytest.mark.slow
def test_compare_measures_with_it(file, ran, tmp_path):
    """The mean square fits these targets; classes they are none."""
    words = ("compare", f"{file}:build", f"{file}:build", "--data", f"{file}:data", "--lens", "curvature")
    found = {}
    for loss in ("mse", f"{file}:half"):
        status, out, err = ran(*words, "--draws", "2", "--loss", loss, "--out", tmp_path / "o", "--json")
        assert status == 0, err
        number = next(entry for entry in json.loads(out)["numbers"] if entry["number"] == "largest eigenvalue")
        found[loss] = [value for values in number["values"].values() for value in values]
    assert found[f"{file}:half"] == pytest.approx([value / 2 for value in found["mse"]], rel=1e-6)
