import json

import pytest

MODELS = (
    "import torch\n"
    "from torch import nn\n"
    "class Block(nn.Module):\n"
    "    def __init__(self, scale):\n"
    "        super().__init__()\n"
    "        self.branch, self.scale = nn.Linear(4, 4), scale\n"
    "    def forward(self, x):\n"
    "        return x + self.scale * self.branch(x)\n"
    "def net(scale): return nn.Sequential(Block(scale), Block(scale), nn.Linear(4, 2)).double()\n"
    "def small(): return net(0.01)\n"
    "def large(): return net(1.0)\n"
    "def data(): return torch.arange(32.).reshape(8, 4).double().sin(), torch.arange(8) % 2\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODELS)
    return path


def words(file, tmp_path, *more: str) -> tuple[str, ...]:
    common = ("--data", f"{file}:data", "--lens", "structure", "--draws", "3", "--out", str(tmp_path / "o"))
    return ("compare", f"{file}:small", f"{file}:large", *common, *more)


@pytest.mark.slow
def test_functions_of_a_file_are_drawn_several_times_and_compared(file, tmp_path, ran):
    status, out, err = ran(*words(file, tmp_path, "--json"))
    assert status == 0, err
    content = json.loads(out)
    assert [model["draws"] for model in content["models"]] == [3, 3]
    found = {entry["number"]: entry["against_first"][0]["verdict"] for entry in content["numbers"]}
    assert found["branch over shortcut, median"] == "higher" and found["parameters"] == "same"
    assert (tmp_path / "o" / "comparison.html").exists() and (tmp_path / "o" / "comparison.json").exists()


@pytest.mark.slow
def test_the_terminal_shows_the_verdict_the_numbers_and_what_was_sampled(file, tmp_path, ran):
    status, out, _ = ran(*words(file, tmp_path))
    assert status == 0 and "more than seed-to-seed noise" in out and "branch over shortcut" in out
    assert "drawn up to 3 times" in out and "comparison.html" in out
    assert "--full prints" in out and "residual blocks" not in out, "what is alike is left out"
    status, out, _ = ran(*words(file, tmp_path, "--full", "--force"))
    assert status == 0 and "residual blocks" in out and "--full prints" not in out


def test_a_checkpoint_exists_once_and_it_is_said(file, tmp_path, ran):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    weights = {"0.branch.weight": torch.eye(4), "0.branch.bias": torch.zeros(4)}
    weights |= {f"1.{name[2:]}": value.clone() for name, value in weights.items()}
    weights |= {"2.weight": torch.ones(2, 4), "2.bias": torch.zeros(2)}
    safetensors.save_file(weights, tmp_path / "w.safetensors")
    status, out, err = ran(*words(file, tmp_path, "--weights", f"none,{tmp_path / 'w.safetensors'}"))
    assert status == 0, err
    assert "It was handed over as a model, so it exists once" in " ".join(out.split())


def test_a_model_against_itself_gets_two_names(file, tmp_path, ran):
    model = f"{file}:small"
    status, out, _ = ran(
        "compare",
        model,
        model,
        "--data",
        f"{file}:data",
        "--lens",
        "structure",
        "--draws",
        2,
        "--out",
        tmp_path,
        "--json",
    )
    assert status == 0 and [entry["name"] for entry in json.loads(out)["models"]] == [f"{model} (1)", f"{model} (2)"]


def test_bad_input_is_one_sentence_and_status_2(file, tmp_path, ran):
    status, _, err = ran("compare", f"{file}:small", "--data", f"{file}:data", "--out", tmp_path / "o")
    assert status == 2 and "needs at least 2 models" in err
    status, _, err = ran(*words(file, tmp_path, "--weights", "a.safetensors"))
    assert status == 2 and "--weights names 1 files for 2 models" in err
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_inspect_verifies_what_it_suggests(file, tmp_path, ran):
    file.write_text(MODELS + "def explode(): return nn.Sequential(*(Block(40.) for _ in range(6))).double()\n")
    common = ("--data", f"{file}:data", "--lens", "structure", "--out", tmp_path / "o")
    status, out, err = ran("inspect", f"{file}:explode", *common, "--verify", "--verify-seconds", "4", "--json")
    assert status == 0, err
    (proof,) = (reading for reading in json.loads(out)["readings"] if reading["kind"] == "verification")
    assert proof["values"]["rule"] == "signal_growth" and proof["values"]["solved"]
