"""Third-party architectures: every join, shortcut and parameter as their own code says, written by hand."""

import copy
from dataclasses import dataclass

import pytest
import torch

from skiplens.graph.dissect import dissect, find_residual_blocks
from tests import hugging_face


@dataclass(frozen=True)
class Expected:
    """One block: its name, shortcut and depth, and the modules whose parameters its branch and its shortcut own."""

    name: str
    kind: str
    depth: int
    branch: tuple[str, ...]
    shortcut: tuple[str, ...] = ()


def stage_blocks(root: str, kinds: list[list[str]], depth: int) -> list[Expected]:
    """ResNet and RegNet: the branch is called `layer`, the projection `shortcut`."""
    names = [(f"{root}.stages.{s}.layers.{b}", kind) for s, stage in enumerate(kinds) for b, kind in enumerate(stage)]
    return [
        Expected(name, kind, depth, (f"{name}.layer",), (f"{name}.shortcut",) if kind == "projection" else ())
        for name, kind in names
    ]


def pairs(layers: str, first: tuple[str, ...], second: tuple[str, ...]) -> list[Expected]:
    """Transformer layers with an attention join and an MLP join; each named by the last module of its branch."""
    return [
        Expected(f"{layers}.{i}.{branch[-1]}", "identity", 2, tuple(f"{layers}.{i}.{part}" for part in branch))
        for i in range(2)
        for branch in (first, second)
    ]


def post_norm_pairs(layers: str) -> list[Expected]:
    """BERT: the norms come after the joins, so no branch owns them."""
    found = []
    for i in range(2):
        layer = f"{layers}.{i}"
        attention = (f"{layer}.attention.self", f"{layer}.attention.output.dense")
        found.append(Expected(f"{layer}.attention", "identity", 2, attention))
        found.append(Expected(layer, "identity", 2, (f"{layer}.intermediate.dense", f"{layer}.output.dense")))
    return found


def disentangled_attention(blocks: list[Expected]) -> list[Expected]:
    """DeBERTa: keys meet one more matrix, made of the embeddings of relative positions that all layers share."""
    positions = ("encoder.rel_embeddings",)
    return [Expected(b.name, b.kind, 3, b.branch + positions) if "attention" in b.name else b for b in blocks]


FIRST_PROJECTED = [["projection", "identity"], ["projection", "identity"]]
SECOND_PROJECTED = [["identity", "identity"], ["projection", "identity"]]

FAMILIES = {
    # a basic or bottleneck ResNet keeps the first stage at the width and resolution of the stem
    "resnet_basic": stage_blocks("resnet.encoder", SECOND_PROJECTED, depth=2),
    "resnet_bottleneck": stage_blocks("resnet.encoder", SECOND_PROJECTED, depth=3),
    # RegNet-Y: three convolutions and the two of squeeze-and-excitation in series; each stage starts with stride 2
    "regnet": stage_blocks("regnet.encoder", FIRST_PROJECTED, depth=5),
    "convnext": [
        Expected(f"convnext.encoder.stages.{s}.layers.{b}", "identity", 3, (f"convnext.encoder.stages.{s}.layers.{b}",))
        for s in range(2)
        for b in range(2)
    ],
    "vit": pairs("vit.layers", ("layernorm_before", "attention"), ("layernorm_after", "mlp")),
    "gpt2": pairs("transformer.h", ("ln_1", "attn"), ("ln_2", "mlp")),
    "llama": pairs("model.layers", ("input_layernorm", "self_attn"), ("post_attention_layernorm", "mlp")),
    "bert": post_norm_pairs("encoder.layer"),
    # attention and MLP side by side after one norm: one sum, one block
    "gptj": [Expected(f"h.{i}", "identity", 2, (f"h.{i}",)) for i in range(2)],
    "deberta": disentangled_attention(post_norm_pairs("encoder.layer")),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the fixture outlives the one that sets it for each test
    model, inputs = hugging_face.built(getattr(hugging_face, request.param))
    network = dissect(model, inputs)
    torch.set_default_dtype(before)
    return FAMILIES[request.param], network, inputs


def test_finds_exactly_the_blocks_of_the_architecture(family):
    expected, network, _ = family
    found = [(block.name, block.shortcut.kind, block.branch_depth) for block in network.blocks]
    assert found == [(block.name, block.kind, block.depth) for block in expected]
    assert [block.index for block in network.blocks] == list(range(len(expected)))
    assert network.kind == "residual"


def test_gives_each_block_exactly_the_parameters_of_its_modules(family):
    expected, network, _ = family
    for block, wanted in zip(network.blocks, expected, strict=True):
        assert set(block.branch.parameters) == parameters_of(network.model, wanted.branch)
        assert set(block.shortcut.parameters) == parameters_of(network.model, wanted.shortcut)
        assert block.parameters == sum(
            network.model.get_parameter(name).numel()
            for name in parameters_of(network.model, wanted.branch + wanted.shortcut)
        )


def test_runs_the_graph_to_the_same_bits_as_the_model(family):
    _, network, inputs = family
    output = network.model(**inputs) if isinstance(inputs, dict) else network.model(inputs)
    outputs = network.outputs()
    expected = {name: value for name, value in output.items() if isinstance(value, torch.Tensor)}
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(outputs[name], value), name


@pytest.mark.parametrize("name", ["resnet_basic", "gpt2", "bert"])
def test_finds_the_same_blocks_in_train_mode(name):
    model, inputs = hugging_face.built(getattr(hugging_face, name))
    network = dissect(model.train(), inputs)
    assert [block.name for block in network.blocks] == [block.name for block in FAMILIES[name]]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        outputs = network.outputs()
        torch.manual_seed(1)
        twin = copy.deepcopy(model)  # a call in train mode moves the running statistics
        expected = twin(**inputs) if isinstance(inputs, dict) else twin(inputs)
    main = "last_hidden_state" if name == "bert" else "logits"
    assert torch.equal(outputs[main], expected[main])


def test_counts_each_run_of_a_shared_layer():
    names = [block.name for block in find_residual_blocks(*hugging_face.built(hugging_face.albert))]
    layer = "encoder.albert_layer_groups.0.albert_layers.0"
    assert names == [f"{layer}.attention", layer, f"{layer}.attention@2", f"{layer}@2"]


def test_finds_encoder_decoder_and_cross_attention_blocks():
    model, inputs = hugging_face.built(hugging_face.t5)
    blocks = find_residual_blocks(model, inputs)
    layers = ["encoder.block.0.layer.0", "encoder.block.0.layer.1"]
    layers += [f"decoder.block.0.layer.{i}" for i in range(3)]
    assert [block.name for block in blocks] == layers
    for block in blocks:  # keys and values of the cross-attention come from the encoder and still belong to its block
        assert set(block.branch.parameters) == parameters_of(model, (block.name,))


def parameters_of(model, modules):
    return {name for name, _ in model.named_parameters() if name.startswith(tuple(f"{module}." for module in modules))}
