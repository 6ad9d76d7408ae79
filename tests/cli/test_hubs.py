"""Models by the names that people know them by; nothing is downloaded."""

import socket
import sys
import types

import pytest
import torch
import transformers
from torch import nn

from skiplens.base.errors import InvalidInputError, MissingDependencyError, ModelSpecError
from skiplens.cli.flags import DataSettings, ModelSettings
from skiplens.cli.hubs import offline
from skiplens.cli.models import build_model, data_for, model_for
from skiplens.graph.batch import take

SMALL = ("n_layer=2", "n_embd=16", "n_head=2", "vocab_size=40", "n_positions=12")


def _config():
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 40, "n_positions": 12}
    return transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=1)


def test_a_family_is_built_with_random_weights_by_seed():
    first, again, other = (build_model("hf:gpt2", seed, SMALL) for seed in (1, 1, 2))
    assert isinstance(first, transformers.GPT2LMHeadModel) and first.config.n_layer == 2
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_building_does_not_touch_the_random_state():
    before = torch.get_rng_state()
    build_model("hf:gpt2", 1, SMALL)
    assert torch.equal(before, torch.get_rng_state())


def test_a_folder_gives_its_configuration_and_its_weights_when_asked(tmp_path):
    stored = transformers.GPT2LMHeadModel(_config())
    stored.save_pretrained(tmp_path)
    drawn, kept = build_model(f"hf:{tmp_path}", 7), build_model(f"hf:{tmp_path}", 0, (), True)
    assert torch.equal(kept.lm_head.weight, stored.lm_head.weight)
    assert drawn.config.n_embd == 16 and not torch.equal(drawn.lm_head.weight, stored.lm_head.weight)


def test_without_data_a_language_model_gets_tokens_and_an_image_model_images():
    tokens = take(data_for("hf:gpt2", DataSettings(), build_model("hf:gpt2", 0, SMALL)), 64)
    assert tokens.inputs["input_ids"].shape == (64, 12) and int(tokens.inputs["input_ids"].max()) < 40
    sizes = ("image_size=16", "patch_size=8", "hidden_size=8", "num_hidden_layers=1", "num_attention_heads=2")
    model = build_model("hf:vit", 0, sizes)
    images = take(data_for("hf:vit", DataSettings(), model), 8)
    assert images.inputs.shape == (8, 3, 16, 16) and model(images.inputs).logits.shape[0] == 8


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("hf:gpt3", (), "neither a folder with a config.json nor a model that was downloaded before. Did you mean"),
        ("hf:gpt2", ("depth=3",), "hf:gpt2 has no option 'depth'"),
        ("hf:gpt2", ("n_head=5",), "'hf:gpt2' cannot be built: ValueError"),
        ("torch.nn:Identity", ("depth",), "--set has 'depth'; write name=value"),
    ],
)
def test_a_name_or_option_that_means_nothing_is_one_sentence(spec, options, message):
    with pytest.raises(InvalidInputError, match=message):
        build_model(spec, 0, options)


def test_pretrained_weights_that_are_not_here_are_not_fetched():
    with pytest.raises(ModelSpecError, match="nor a model that was downloaded before"):
        build_model("hf:gpt2", 0, (), True)
    with pytest.raises(InvalidInputError, match="--pretrained is for hf:, timm: and torchvision:"):
        build_model("zoo:default", 0, (), True)


def test_no_connection_can_be_opened():
    with offline(), pytest.raises(OSError, match="nothing is downloaded"):
        socket.create_connection(("127.0.0.1", 1))


class Vision(nn.Module):
    default_cfg = {"input_size": (3, 20, 20)}  # noqa: RUF012 - as timm has it

    def __init__(self, depth=1):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), *(nn.LazyLinear(2) for _ in range(depth)))

    def forward(self, images):
        return self.body(images)


def _timm(name, pretrained, **options):
    if pretrained:
        socket.create_connection(("127.0.0.1", 1))
    return Vision(**options)


STAND_INS = {
    "timm": {"timm": types.SimpleNamespace(list_models=lambda: ["small"], create_model=_timm)},
    "torchvision": {
        "torchvision.models": types.SimpleNamespace(
            list_models=lambda: ["small"], get_model=lambda name, weights, **options: _timm(name, weights, **options)
        )
    },
}


@pytest.mark.parametrize("hub", STAND_INS)
def test_the_other_hubs_by_a_stand_in(monkeypatch, hub):
    for name, module in STAND_INS[hub].items():
        monkeypatch.setitem(sys.modules, name, module)
    model = build_model(f"{hub}:small", 0, ("depth=3",))
    assert len(model.body) == 4
    assert take(data_for(f"{hub}:small", DataSettings(), model), 2).inputs.shape == (2, 3, 20, 20)
    with pytest.raises(ModelSpecError, match=f"{hub} has no model 'smal'. Did you mean small"):
        build_model(f"{hub}:smal")
    with pytest.raises(ModelSpecError, match="Weights must have been downloaded before"):
        build_model(f"{hub}:small", 0, (), True)


@pytest.mark.parametrize("hub", STAND_INS)
def test_a_hub_without_its_package_is_one_sentence(monkeypatch, hub):
    monkeypatch.setitem(sys.modules, hub, None)
    with pytest.raises(MissingDependencyError, match=f"is needed for models named {hub}:"):
        build_model(f"{hub}:small")


def test_options_reach_a_function_and_the_zoo(tmp_path):
    body = "    return nn.Sequential(*[nn.ReLU() for _ in range(depth)])"
    (tmp_path / "my.py").write_text(f"from torch import nn\ndef build(depth=1, kind='x'):\n{body}\n", "utf-8")
    assert len(build_model(f"{tmp_path / 'my.py'}:build", 0, ("depth=3", "kind=deep"))) == 3
    with pytest.raises(ModelSpecError, match=r"unexpected keyword argument 'width'\. It is called with width alone"):
        build_model(f"{tmp_path / 'my.py'}:build", 0, ("width=3",))
    assert build_model("zoo:shortcut_linear", 0, ("units=2", "width=3")) is not None


def test_the_mode_is_the_one_that_was_asked_for():
    assert not model_for(ModelSettings(model="torch.nn:Identity", eval=True)).training
    assert model_for(ModelSettings(model="torch.nn:Identity", train=True)).training
    assert model_for(ModelSettings(model="torch.nn:Identity")).training
    with pytest.raises(InvalidInputError, match="--eval and --train were both given"):
        model_for(ModelSettings(eval=True, train=True))


def test_inspect_takes_a_model_of_a_hub(ran, tmp_path):
    words = ("--set", ",".join(SMALL), "--eval", "--lens", "structure", "--out", tmp_path)
    status, _, err = ran("inspect", "hf:gpt2", *words)
    assert status == 0 and "random tokens without targets" in err and (tmp_path / "report.html").exists()
