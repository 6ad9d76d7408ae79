"""Which changes a network is offered, and that each does what its words say."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.batch import Batch
from skiplens.improvement.changes import changes_for
from skiplens.improvement.patient import Patient
from skiplens.improvement.plan import SLOTS, changed, ordered, trained_with
from skiplens.trainability.optimizers import optimizer_choice

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BATCH = Batch(X, torch.arange(64) % 3)


class Residual(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(depth))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for branch in self.branches:
            x = x + branch(x)
        return self.head(x)


def plain(depth=6, activation=nn.ReLU):
    torch.manual_seed(0)
    layers = [part for _ in range(depth) for part in (nn.Linear(8, 8), activation())]
    return nn.Sequential(*layers, nn.Linear(8, 3))


def patient(model, batch=BATCH):
    return Patient(model, batch, None, 100, optimizer_choice("sgd"))


def offered(model, keep=None, batch=BATCH):
    return {change.name: change for change in changes_for(patient(model, batch), keep)[0]}


def test_what_must_stay_limits_what_is_offered():
    assert set(offered(plain(), "outputs")) == {"warm_up", "clip"}
    values = offered(plain(), "architecture")
    assert {"unit_variance", "orthogonal", "centred", "looks_linear", "he"} <= set(values)
    assert not {change.slot for change in values.values()} & {"inputs", "outputs", "activations", "norms", "shortcuts"}
    assert {"shortcuts_over_1", "shortcuts_over_2", "layer_norms", "batch_norms"} <= set(offered(plain()))


def test_every_offer_keeps_what_it_promises():
    model = plain()
    for change in changes_for(patient(model), "architecture")[0]:
        made = changed(model, (change,), X)
        assert [n for n, _ in made.named_parameters()] == [n for n, _ in model.named_parameters()]
        assert str(made) == str(model)
    for change in changes_for(patient(model), "outputs")[0]:
        assert torch.equal(changed(model, (change,), X)(X), model(X))


def test_residual_networks_get_their_branches_scaled():
    model = Residual()
    found = offered(model)
    assert "looks_linear" not in found and "shortcuts_over_1" not in found
    zero = changed(model, (found["zero_branches"],), X)
    assert torch.equal(zero(X), zero.head(X))
    small = changed(model, (found["small_branches"],), X)
    for old, new in zip(model.branches, small.branches, strict=True):
        assert torch.allclose(new(X), 0.5 * old(X), atol=1e-6), "1/√4"


class Backwards(nn.Module):
    """Its last layer is listed first; with a gate, the last layer is not the gate."""

    def __init__(self, gated):
        super().__init__()
        self.second, self.first, self.gate = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8) if gated else None

    def forward(self, x):
        return x + (1.0 if self.gate is None else self.gate(x).sigmoid()) * self.second(self.first(x).relu())


@pytest.mark.parametrize("kind", ["listed backwards", "gated", "of torch"])
def test_branches_that_start_at_zero_leave_the_shortcuts_alone(kind):
    torch.manual_seed(0)
    layer = {"dim_feedforward": 16, "dropout": 0.0, "batch_first": True, "norm_first": True}
    body = [
        nn.TransformerEncoderLayer(8, 2, **layer) if kind == "of torch" else Backwards(kind == "gated")
        for _ in range(2)
    ]
    model, inputs = nn.Sequential(*body, nn.Linear(8, 3)), X.view(64, 1, 8)
    found = offered(model, batch=Batch(inputs, BATCH.targets.view(64, 1)))
    assert torch.equal(changed(model, (found["zero_branches"],), inputs)(inputs), model[-1](inputs))


class Gate(nn.Module):
    """A gate that starts nearly shut, as its bias says, for a layer of any size."""

    def __init__(self, gain, bias):
        super().__init__()
        self.inner, self.gate = nn.Linear(8, 8), nn.Linear(8, 8)
        nn.init.normal_(self.inner.weight, std=gain * 8**-0.5)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x):
        return torch.lerp(x, self.inner(x).relu(), self.gate(x).sigmoid())


def test_gates_keep_the_biases_that_their_author_gave_them():
    torch.manual_seed(0)
    assert "far_layers" not in offered(nn.Sequential(*(Gate(1.0, 0.0) for _ in range(4)), nn.Linear(8, 3)))
    model = nn.Sequential(*(Gate(20.0, -2.5) for _ in range(4)), nn.Linear(8, 3))
    made = changed(model, (offered(model, "architecture")["far_layers"],), X).requires_grad_(False)
    for old, new in zip(model[:4], made[:4], strict=True):
        assert torch.equal(old.gate.bias, new.gate.bias) and torch.equal(old.gate.weight, new.gate.weight)
        assert torch.allclose(new.inner.weight / old.inner.weight, new.inner.bias[0] / old.inner.bias[0])
    x = X
    for block in made[:4]:
        assert float(block.inner(x).square().mean().sqrt()) == pytest.approx(1.0, rel=1e-12)
        x = block(x)


@pytest.mark.parametrize("name", ["shortcuts_over_1", "shortcuts_over_2"])
def test_new_shortcuts_start_as_identities(name):
    model = plain(activation=nn.Tanh)
    change = offered(model)[name]
    made = changed(model, (change,), X)
    assert torch.equal(made(X), model[-1](torch.tanh(X))), "branches of zero: activation and head stay"
    ends = [made.get_parameter(part) for part in change.remedies[0].parameters["zeros"] if part.endswith("weight")]
    gradients = torch.autograd.grad(F.cross_entropy(made(X), BATCH.targets), ends)
    assert all(float(gradient.abs().sum()) > 0 for gradient in gradients), "the branches learn"


class Padded(nn.Module):
    """A convolution whose own input is longer than its output; the module around it gives what it takes in shape."""

    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(8, 8, 3)

    def forward(self, x):
        return self.filters(F.pad(x, (2, 0)))


def test_a_layer_in_a_module_that_keeps_the_shape_gets_a_shortcut_around_it():
    torch.manual_seed(0)
    body = [part for _ in range(4) for part in (Padded(), nn.ReLU())]
    model = nn.Sequential(nn.Unflatten(1, (8, 1)), *body, nn.Flatten(), nn.Linear(8, 3))
    change = offered(model)["shortcuts_over_1"]
    assert change.remedies[0].parameters["spans"] == [["1", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
    made = changed(model, (change,), X)
    assert torch.equal(made(X), model[-1](torch.relu(X))), "the branches start at zero, the last ReLU stays"


def test_blocks_of_several_layers_get_a_shortcut_around_each():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(8, 3))
    change = offered(model)["shortcuts_over_1"]
    assert change.remedies[0].parameters["spans"] == [[str(k), str(k)] for k in range(4)]
    assert change.remedies[0].parameters["zeros"][:2] == ["0.3.weight", "0.3.bias"]
    made = changed(model, (change,), X)
    assert torch.equal(made(X), model[-1](X))
    with torch.no_grad():
        made[0][3].weight.copy_(model[0][3].weight), made[0][3].bias.copy_(model[0][3].bias)
    assert torch.equal(made(X), model[-1](X + model[0](X))), "around the norm too"


def test_no_shortcut_over_two_layers_of_different_shapes():
    torch.manual_seed(0)
    body = [layer for places in (8, 4, 2, 1) for layer in (nn.Conv1d(4, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(places))]
    model = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 1), *body, nn.Flatten(), nn.Linear(4, 3))
    found = offered(model)
    assert "shortcuts_over_2" in found  # the first pair has 8 places before and between
    assert found["shortcuts_over_2"].remedies[0].parameters["spans"] == [["2", "5"]]
    assert changed(model, (found["shortcuts_over_2"],), X)(X).shape == (64, 3)


class Forked(nn.Module):
    """Gives a signal for the next block and a part of the answer, as WaveNet does; all have one shape."""

    def __init__(self, first):
        super().__init__()
        self.on, self.out, self.both = (nn.Linear(8, 8) for _ in range(3))
        self.first = first  # whether the signal comes first

    def forward(self, x):
        inside = torch.tanh(self.both(x))
        on, out = self.on(inside), self.out(inside)
        return (on, out) if self.first else (out, on)


class ForkedChain(nn.Module):
    def __init__(self, first, depth=5):
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head = nn.ModuleList(Forked(first) for _ in range(depth)), nn.Linear(8, 3)

    def forward(self, x, shortcuts=()):
        answer = 0
        for number, block in enumerate(self.blocks):
            on, out = block(x) if block.first else reversed(block(x))
            x, answer = (x + on if number in shortcuts else on), answer + out
        return self.head(answer)


@pytest.mark.parametrize("first", [True, False])
def test_blocks_that_give_several_tensors_get_a_shortcut_to_the_one_that_goes_on(first):
    model = ForkedChain(first)
    change = offered(model)["shortcuts_over_1"]
    spans, zeros = (change.remedies[0].parameters[name] for name in ("spans", "zeros"))
    assert spans[:4] == [[f"blocks.{k}", f"blocks.{k}", 0 if first else 1] for k in range(4)]
    assert zeros[:2] == ["blocks.0.on.weight", "blocks.0.on.bias"] and "blocks.0.out.weight" not in zeros
    made = changed(model, (change,), X)
    with torch.no_grad():  # the last block has no next: it is changed inside, and here as it was
        for name in zeros:
            made.get_parameter(name).copy_(model.get_parameter(name))
    made.blocks[4] = copy.deepcopy(model.blocks[4])
    assert torch.equal(made(X), model(X, shortcuts=range(4)))
    assert not torch.allclose(made(X), model(X))


class Scanned(nn.Module):
    def __init__(self, embedding=1.0, recurrent=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.cells, self.head = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)
        with torch.no_grad():
            self.tokens.weight.mul_(embedding)
            self.cells.weight_hh_l0.mul_(recurrent)

    def forward(self, codes):
        return self.head(self.cells(self.tokens(codes))[0])


def test_embeddings_and_recurrent_layers_far_from_torchs_start_are_drawn_as_torch_does():
    codes = torch.arange(128).view(16, 8) % 9
    batch = Batch(codes, codes)
    assert "torch_default" not in offered(Scanned(), "architecture", batch)
    zeros = Scanned()
    nn.init.zeros_(zeros.head.bias)  # as many start them
    assert "torch_default" not in offered(zeros, "architecture", batch)
    for fault, reason in (({"embedding": 50.0}, "tokens.weight"), ({"recurrent": 0.02}, "cells.weight_hh_l0")):
        assert next(iter(offered(Scanned(**fault), "architecture", batch))) == "torch_default", "no cost leaves it out"
        change = offered(Scanned(**fault), "architecture", batch)["torch_default"]
        assert change.reason.startswith(f"{reason} has ")
        made = changed(Scanned(**fault), (change,), codes).requires_grad_(False)
        assert 0.7 < float(made.tokens.weight.std()) < 1.3 and float(made.cells.weight_hh_l0.abs().max()) <= 8**-0.5


def test_unusual_inputs_are_standardised():
    shifted = Batch(50 * X + 1000, BATCH.targets)
    assert "standardise_inputs" not in offered(plain())
    change = offered(plain(), batch=shifted)["standardise_inputs"]
    seen = []
    made = changed(plain(), (change,), shifted.inputs)
    made[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    made(shifted.inputs)
    assert abs(float(seen[0].mean())) < 1e-2 and float(seen[0].std()) == pytest.approx(1, abs=1e-2)


def test_features_of_different_size_get_a_number_each():
    sizes = torch.logspace(-3, 3, 8, dtype=torch.float64)
    change = offered(plain(), batch=Batch(X * sizes, BATCH.targets))["standardise_inputs"]
    assert len(change.remedies[0].parameters["std"]) == 8


def test_a_softmax_is_found_and_undone():
    model = nn.Sequential(plain(), nn.Softmax(-1))
    change = offered(model)["undo_softmax"]
    assert torch.allclose(changed(model, (change,), X)(X), model[0](X).log_softmax(-1), atol=1e-6)


def test_post_norm_and_sigmoid_are_offered_a_change():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(1))

    assert "norms_first" in offered(Encoder(), batch=Batch(torch.randn(64, 5, 8), BATCH.targets))
    assert "relu" in offered(plain(activation=nn.Sigmoid))


def test_heavy_dropout_is_made_light_even_where_outputs_stay():
    model = nn.Sequential(nn.Dropout(0.9), plain())
    found = {change.name: change for change in changes_for(patient(model), "outputs")[0]}["drop_less"]
    made = changed(model, (found,), X)
    assert made[0].p == pytest.approx(0.1) and torch.equal(made.eval()(X), model.eval()(X))
    assert "drop_less" not in offered(nn.Sequential(nn.Dropout(0.5), plain()))


def test_a_large_head_is_made_small():
    model = plain(2)
    model[-1].weight.data.mul_(100)
    model[-1].bias.data.mul_(100)
    found = offered(model)["head"]
    size = changed(model, (found,), X)(X).detach()
    assert float((size - size.mean(-1, keepdim=True)).square().mean().sqrt()) == pytest.approx(0.3, rel=0.01)


def test_why_something_is_left_out_is_told():
    _, left_out = changes_for(patient(Residual()), None)
    assert left_out["shortcuts"] == "it has 4 residual blocks, and none is missing in a row of them"
    assert "keep='outputs'" in changes_for(patient(plain()), "outputs")[1]["another start"]


class Scaled(nn.Module):
    """One number to train, and a path that no graph can hold."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x[:, :3] * (2.0 if x.detach().numpy().sum() > 0 else 1.0)


def test_each_reason_to_leave_something_out_has_its_network():
    left_out = changes_for(patient(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3))), None)[1]
    assert left_out["standardise the inputs"] == "the inputs are standardised well enough"
    assert left_out["take a softmax out"] == "the outputs are no probabilities"
    assert left_out["shortcuts"] == "only 1 of its layers give what they take in shape"
    assert left_out["norms"].startswith("it has norms, and the gradients of its layers differ by")
    assert left_out["norms before the sum"] == "none of its norms comes right after the sum of a block"
    assert left_out["other activations"] == "no activation that saturates is a module of its own"
    assert left_out["another size of branches"] == "it has no residual blocks"
    left_out = changes_for(patient(Scaled(), Batch(torch.full((64, 8), 7.0), BATCH.targets)), None)[1]
    assert left_out["standardise the inputs"] == "the inputs are constant"
    assert left_out["another start"] == "it has no linear or convolution layer"
    assert left_out["norms"] == "it has no layer that a norm could follow"
    assert "numpy" in left_out["another size of branches"], "why no graph holds it"
    tokens = Batch(torch.randint(5, (64, 4)), BATCH.targets)
    embedded = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(16, 3))
    assert changes_for(patient(embedded, tokens), None)[1]["standardise the inputs"] == "the inputs are tokens"


def test_offers_and_code_agree_for_all_changes():
    for model in (plain(), Residual(), plain(activation=nn.Sigmoid)):
        kept = copy.deepcopy(model.state_dict())
        for change in changes_for(patient(model), None)[0]:
            pasted = {"model": copy.deepcopy(model), "inputs": X}
            for remedy_code in [change.code] if change.remedies else []:
                exec(remedy_code, pasted)
            assert torch.equal(changed(model, (change,), X)(X), pasted["model"](X)), change.name
        assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())


def test_changes_are_made_in_the_order_of_their_slots():
    found = list(offered(Residual()).values())
    slots = [SLOTS.index(change.slot) for change in ordered(found[::-1])]
    assert slots == sorted(slots)


def test_warm_up_and_clipping_change_the_steps():
    found = offered(plain())
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([30.0, 40.0])
    mover = trained_with(optimizer_choice("sgd"), (found["clip"],)).make([parameter], 0.1)
    mover.step()
    assert torch.allclose(parameter.detach(), -0.1 * torch.tensor([0.6, 0.8]), atol=1e-6)
    parameter = nn.Parameter(torch.zeros(1))
    mover = trained_with(optimizer_choice("sgd"), (found["warm_up"],)).make([parameter], 1.0)
    moved = []
    for _ in range(12):
        parameter.grad, before = torch.ones(1), parameter.item()
        mover.optimizer.state.clear()  # without momentum
        mover.step()
        moved.append(before - parameter.item())
    assert moved == pytest.approx([min(1.0, (k + 1) / 10) for k in range(12)], rel=1e-5)


def test_weights_that_blocks_share_are_named_and_scaled_once():
    model = Residual(4)
    for branch in model.branches[1:]:
        branch[2] = model.branches[0][2]  # one module, called four times
    model.branches[3][0].weight = model.branches[0][0].weight  # two modules, one tensor
    found, left_out = changes_for(patient(model), None)
    shared = [reason for name, reason in left_out.items() if name.startswith("norms and shortcuts at ")]
    assert shared == ["their weights are used in several places; a start is measured at the first of them"]
    (named,) = (name for name in left_out if name.startswith("norms and shortcuts at "))
    assert {"branches.0.0", "branches.0.2", "branches.3.0"} == set(
        named.removeprefix("norms and shortcuts at ").split(", ")
    )
    small = next(change for change in found if change.name == "small_branches")
    made = changed(model, (small,), X)
    assert torch.allclose(made.branches[2][2].weight, model.branches[2][2].weight / 2, rtol=1e-3)
    assert not any(name.startswith("norms and") for name in changes_for(patient(Residual(4)), None)[1])


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_layers_below_a_head_that_trains_are_named():
    model = nn.Sequential(*plain(2).float()[:4], nn.Linear(8, 3).float())
    model = torch.ao.quantization.quantize_dynamic(model, {"0": torch.ao.quantization.default_dynamic_qconfig})
    batch = Batch(X.float(), BATCH.targets)
    _, left_out = changes_for(patient(model, batch), "architecture")
    assert left_out["changes of 0"] == "their weights are quantised, and no training moves them"
