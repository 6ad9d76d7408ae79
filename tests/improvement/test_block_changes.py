"""Which shortcuts, sizes of branches and norms a network with residual blocks is offered, and what they do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.batch import Batch
from skiplens.improvement.changes import changes_for
from skiplens.improvement.patient import Patient
from skiplens.improvement.plan import changed
from skiplens.trainability.optimizers import optimizer_choice

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.arange(64) % 3


def asked(model, inputs=X):
    found, left_out = changes_for(Patient(model, Batch(inputs, TARGETS), None, 100, optimizer_choice("sgd")), None)
    return {change.name: change for change in found}, left_out


def perceptron(gain=1.0):
    branch = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    for layer in (branch[0], branch[2]):
        nn.init.normal_(layer.weight, std=gain * 8**-0.5)
    return branch


class Blocks(nn.Module):
    """Residual blocks; those that are named have no shortcut, and something may come after each sum."""

    def __init__(self, branches, plain=(), after=()):
        super().__init__()
        self.branches, self.after, self.plain = nn.ModuleList(branches), nn.ModuleList(after), plain
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for number, branch in enumerate(self.branches):
            x = branch(x) if number in self.plain else x + branch(x)
            x = self.after[number](x) if len(self.after) else x
        return self.head(x)


def build(*args, gain=1.0, depth=4, after=None, **named):
    torch.manual_seed(0)
    after = [after() for _ in range(depth)] if after else ()
    return Blocks([perceptron(gain) for _ in range(depth)], *args, after=after, **named).double()


def test_a_shortcut_that_is_missing_in_a_row_of_blocks_is_added():
    model = build(plain=(2,), depth=5)
    found, _ = asked(model)
    remedy = found["missing_shortcuts"].remedies[0]
    assert remedy.parameters == {
        "spans": [["branches.2", "branches.2"]],
        "zeros": ["branches.2.2.weight", "branches.2.2.bias"],
    }
    made = changed(model, (found["missing_shortcuts"],), X)
    with torch.no_grad():
        for name in remedy.parameters["zeros"]:
            made.get_parameter(name).copy_(model.get_parameter(name))
    model.plain = ()
    assert torch.allclose(made(X), model(X), rtol=1e-12)
    assert "missing_shortcuts" not in asked(build())[0]
    assert asked(build())[1]["shortcuts"] == "it has 4 residual blocks, and none is missing in a row of them"


def test_a_branch_that_ends_in_a_relu_does_not_start_at_zero():
    torch.manual_seed(0)
    model = Blocks([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)], plain=(1,)).double()
    assert asked(model)[0]["missing_shortcuts"].remedies[0].parameters["zeros"] == []


class Stage(nn.Module):
    def __init__(self, channels, wider, shortcut=True):
        super().__init__()
        stride = 2 if wider > channels else 1
        self.branch = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1), nn.ReLU(), nn.Conv2d(wider, wider, 3, 1, 1)
        )
        self.project = nn.Conv2d(channels, wider, 1, stride) if shortcut and wider > channels else nn.Identity()
        self.shortcut = shortcut

    def forward(self, x):
        return self.project(x) + self.branch(x) if self.shortcut else self.branch(x)


def stages(shortcut):
    torch.manual_seed(0)
    blocks = [Stage(4, 4), Stage(4, 4), Stage(4, 8, shortcut), Stage(8, 8)]
    return nn.Sequential(nn.Conv2d(3, 4, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).double()


def test_a_missing_shortcut_between_stages_is_an_average_pool():
    model = stages(False)
    change = asked(model, IMAGES)[0]["missing_shortcuts"]
    assert change.remedies[0].parameters == {"spans": [["3", "3"]], "zeros": []}
    made = changed(model, (change,), IMAGES)
    h = model[:3](IMAGES)
    pooled = F.pad(F.avg_pool2d(h, 2), (0, 0, 0, 0, 0, 4))
    assert torch.allclose(made[:4](IMAGES), model[3](h) + pooled, rtol=1e-9, atol=1e-12)


def test_projections_get_a_pool_beside_them():
    found, _ = asked(stages(True), IMAGES)
    assert "missing_shortcuts" not in found
    made = changed(stages(True), (found["pooled_projections"],), IMAGES)
    assert not torch.allclose(made(IMAGES), stages(True)(IMAGES))


def test_layers_that_change_the_shape_get_a_pool_where_others_get_an_identity():
    torch.manual_seed(0)
    widths = [(3, 8, 1), (8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 16, 1)]
    layers = [part for a, b, stride in widths for part in (nn.Conv2d(a, b, 3, stride, 1), nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)).double()
    found, _ = asked(model, IMAGES)
    spans = found["pooled_shortcuts"].remedies[0].parameters["spans"]
    assert spans[-1] == ["5", "6"] and len(spans) == len(found["shortcuts_over_1"].remedies[0].parameters["spans"]) + 1
    made = changed(model, (found["pooled_shortcuts"],), IMAGES)
    h = model[:5](IMAGES)  # branches over equal shapes start at zero, so that all before passes on the first ReLU
    h = model[0](IMAGES)
    h = F.relu(h)
    h = model[6](h) + F.pad(F.avg_pool2d(model[0](IMAGES), 2), (0, 0, 0, 0, 0, 8))
    assert made(IMAGES).shape == (64, 3) and bool(made[:7](IMAGES).isfinite().all())
    assert torch.allclose(made[:7](IMAGES), h, rtol=1e-9, atol=1e-9)


def test_large_branches_are_made_as_small_as_they_are_measured():
    model = build(gain=3.0, depth=9)
    change = asked(model)[0]["measured_branches"]
    made, x = changed(model, (change,), X), X[:32]
    with torch.no_grad():
        for old, new in zip(model.branches, made.branches, strict=True):
            ratios = [after.weight / before.weight for before, after in ((old[0], new[0]), (old[2], new[2]))]
            share = float(old(x).square().mean().sqrt() / x.square().mean().sqrt())
            alpha = (1 / 3 / share) ** 0.5  # of each of two matrices: together they take the share to 1/√9
            for ratio in ratios:
                assert torch.allclose(ratio, torch.tensor(alpha, dtype=ratio.dtype), rtol=1e-3)
            assert torch.allclose(new[2].bias / old[2].bias, torch.tensor(alpha**2, dtype=x.dtype), rtol=1e-3)
            x = x + old(x)
    assert "measured_branches" not in asked(build(gain=0.3))[0]


def test_branches_with_norms_are_scaled_at_their_end():
    torch.manual_seed(0)
    model = Blocks([nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(4)])
    with torch.no_grad():
        for branch in model.branches:
            branch[3].weight.mul_(20)
    factors = asked(model.double())[0]["measured_branches"].remedies[0].parameters["factors"]
    ends = {f"branches.{k}.3.{part}" for k in range(4) for part in ("weight", "bias")}
    assert {"branches.0.3.weight", "branches.0.3.bias"} <= set(factors) <= ends


def test_learned_numbers_start_a_network_as_its_shortcuts():
    model = build()
    change = asked(model)[0]["learned_scales"]
    assert torch.equal(changed(model, (change,), X)(X), model.head(X))
    shared = build()
    shared.branches[1] = shared.branches[0]
    assert "called once" in asked(shared)[1]["learned sizes of branches"]


def test_activations_after_sums_are_left_out():
    model = build(after=nn.Sigmoid)
    found, _ = asked(model)
    assert found["open_sums"].remedies[0].parameters["modules"] == [f"after.{k}" for k in range(4)]
    made = changed(model, (found["open_sums"],), X)
    x = X
    for branch in model.branches:
        x = x + branch(x)
    assert torch.equal(made(X), model.head(x))
    assert "open_sums" not in asked(build())[0]


def test_norms_after_sums_move_to_the_branches():
    model = build(after=lambda: nn.LayerNorm(8))
    change = asked(model)[0]["norms_first"]
    assert change.remedies[0].parameters["moves"] == {
        "after.0": ["branches.1"],
        "after.1": ["branches.2"],
        "after.2": ["branches.3"],
        "after.3": ["head"],
    }
    made, x, before = changed(model, (change,), X), X, nn.Identity()
    for branch, norm in zip(model.branches, model.after, strict=True):
        x, before = x + branch(before(x)), norm
    assert torch.allclose(made(X), model.head(before(x)), rtol=1e-12)
    assert asked(build())[1]["norms before the sum"] == "none of its norms comes right after the sum of a block"


def test_norms_whose_values_are_read_by_no_module_stay():
    class Bent(Blocks):
        def forward(self, x):
            for branch, norm in zip(self.branches, self.after, strict=True):
                x = norm(x + branch(torch.tanh(x)))
            return self.head(x)

    torch.manual_seed(0)
    model = Bent([perceptron() for _ in range(3)], after=[nn.LayerNorm(8) for _ in range(3)]).double()
    assert asked(model)[1]["norms before the sum"] == "what after.0 gives is read by something that is no module"


def test_norms_are_taken_away_where_gradients_are_uneven():
    torch.manual_seed(0)
    body = [part for _ in range(30) for part in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())]
    model = nn.Sequential(*body, nn.Linear(8, 3)).double()
    found, _ = asked(model)
    assert found["no_norms"].remedies[0].parameters["modules"] == [str(3 * k + 1) for k in range(30)]
    made = changed(model, (found["no_norms"],), X)
    h = X
    for k in range(3):
        h = made[3 * k](h)
        assert h.detach().square().mean().item() == pytest.approx(1.0, rel=1e-6), "variance one without the norm"
        h = h.relu()
    left_out = asked(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)).double())[1]
    assert left_out["norms"].startswith("it has norms, and the gradients of its layers differ by")
