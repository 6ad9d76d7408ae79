"""What the rules of layers find in networks with one fault, and that they are silent for healthy ones."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.edits.remedies import apply_remedy
from skiplens.graph.batch import Batch
from skiplens.report.lenses import QUANTITIES, find
from skiplens.signal import LayerStates, layer_findings, layer_states
from tests.report.readings import signal
from tests.signal.looking import look

WIDTH, CLASSES = 32, 5


def data(samples: int = 32) -> Batch:
    inputs = torch.randn(samples, WIDTH, generator=torch.Generator().manual_seed(1))
    return Batch(inputs, torch.arange(samples) % CLASSES)


def plain(depth: int, activation: type[nn.Module] = nn.ReLU, gain: float | None = None, seed: int = 0) -> nn.Sequential:
    """Layers one after the other, with torch's weights or with variance gain²/inputs."""
    torch.manual_seed(seed)
    layers = [part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), activation())]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))
    for layer in net[:-1] if gain is not None else ():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=gain / WIDTH**0.5)
            nn.init.zeros_(layer.bias)
    return net


def shut() -> nn.Sequential:
    net = plain(3)
    nn.init.constant_(net[2].bias, -10.0)
    return net


class Tail(nn.Module):
    """Functional ReLUs; a detach or a block that is never called."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.block = None if cut else nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.cut = cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first(x))
        return self.head(F.relu(self.second(hidden.detach() if self.cut else hidden)))


class After(nn.Module):
    """Layer norm after the sum, or before the branch."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.branch, self.norm, self.after = plain(1)[:2], nn.LayerNorm(WIDTH), after
        nn.init.normal_(self.branch[0].weight, std=2**0.5 / WIDTH**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.branch(x)) if self.after else x + self.branch(self.norm(x))


def stacked(depth: int, after: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(After(after) for _ in range(depth)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))


def findings(model: nn.Module, batch: Batch | None = None) -> list[sl.Finding]:
    kind = next(model.parameters()).dtype
    return layer_findings(layer_states(model, (batch or data()).to(dtype=kind)))


def rules(model: nn.Module, batch: Batch | None = None) -> dict[str, str]:
    return {found.rule: found.severity for found in findings(model, batch)}


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (plain(40), {"layer_gradient": "critical", "features_alike": "critical"}),
        (plain(12), {"layer_gradient": "warning", "features_alike": "critical"}),
        (plain(40, gain=3.0), {"layer_signal": "critical", "features_alike": "warning"}),
        (plain(30, nn.GELU), {"layer_gradient": "critical", "features_alike": "critical"}),
        (plain(30, nn.Tanh, 3 * WIDTH**0.5), {"layer_gradient": "critical", "saturated_layers": "warning"}),
        (plain(8, nn.Sigmoid), {"layer_gradient": "warning", "features_alike": "critical"}),
        (plain(70, gain=2**0.5), {"features_alike": "warning"}),
        (plain(80, gain=60.0), {"not_finite_layer": "critical"}),
        (shut(), {"dead_layers": "critical", "features_alike": "critical"}),
        (Tail(cut=True), {"no_gradient": "warning"}),
        (Tail(cut=False), {"no_gradient": "warning"}),
    ],
    ids=str.split("relu40 relu12 gain3 gelu30 tanh30 sigmoid8 he70 infinite shut detached uncalled"),
)
def test_faults_are_found(model, wanted):
    # An infinite network has more findings than its first one.
    found = rules(model)
    assert wanted.items() <= found.items() and (found == wanted or "not_finite_layer" in wanted)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_shallow_networks_of_torch_are_healthy(activation, depth, seed):
    assert rules(plain(depth, activation, seed=seed)) == {}


def test_deeper_healthy_networks(seed):
    assert rules(plain(20, nn.ReLU, 2**0.5, seed)) == {} and rules(plain(20, nn.Tanh, 1.0, seed)) == {}
    assert rules(stacked(40, after=False)) == {}
    layers = [part for _ in range(10) for part in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())]
    assert rules(nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))) == {}


@pytest.mark.parametrize(
    "model", [plain(20), plain(20, gain=4.0), plain(20, nn.Tanh, 12.0)], ids=["fades", "grows", "tanh"]
)
def test_the_remedy_of_growth_removes_it(model):
    (found,) = (f for f in findings(model) if f.rule.startswith("layer_"))
    fixed = apply_remedy(found.remedy, model)
    assert found.rule not in rules(fixed) and found.code
    exec(found.code, {"model": model})  # the same change, pasted
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fixed.parameters(), strict=True))


def test_the_factor_is_that_of_homogeneous_networks():
    """Torch's weights have the variance 1/(3·inputs): the power of the gradient falls by 1/6 at each ReLU layer."""
    (found,) = (f for f in findings(plain(30)) if f.rule == "layer_gradient")
    per_layer = found.number ** (2 / 30)
    # Of 30 layers of 32 units, each multiplies power by a factor with the variance 5/32 (Hanin, 2018).
    assert abs(math.log(per_layer * 6)) < 4 * (5 / WIDTH / 30) ** 0.5
    quantity = QUANTITIES["layer_gradient"].measure(found, layer_states(plain(30), data()))
    assert quantity == pytest.approx(found.number)


def test_inputs_that_are_alike_are_not_the_fault_of_the_network():
    alike = data().map_inputs(lambda tensor: 1e-3 * tensor + 1)
    assert "features_alike" not in rules(plain(2), alike)


def test_a_token_that_starts_alike_for_all_samples_is_no_fault():
    states = layer_states(plain(2), data())
    late = dataclasses.replace(states, spreads=torch.where(torch.arange(len(states.names)) < 4, 0.9, 1e-3))
    assert "features_alike" not in {f.rule for f in layer_findings(late)}
    alike = dataclasses.replace(states, spreads=torch.full_like(states.spreads, 1e-3))
    assert "features_alike" in {f.rule for f in layer_findings(alike)}


def test_two_numbers_for_each_channel():
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    assert rules(net.train(), data(2)).get("few_statistics") == "warning"
    assert "few_statistics" not in rules(net.train(), data(3)) and "few_statistics" not in rules(net.eval(), data(2))


def test_a_loss_that_moves_nothing():
    net = plain(2)
    states = layer_states(net, data(), lambda outputs, targets: 0 * outputs.sum())
    assert {f.rule: f.severity for f in layer_findings(states)}["no_gradient"] == "critical"
    net.requires_grad_(False)
    assert "no_gradient" not in rules(net)  # frozen on purpose


@pytest.mark.parametrize(
    ("blocks", "ratio", "told"), [(30, 1.0, False), (30, 1.5, True), (40, 0.3, False), (40, 0.5, True)]
)
def test_what_a_norm_after_each_sum_hides(blocks, ratio, told):
    """The share of the input is (1 + r²)^(−L): lost at 2⁻⁴⁶ = ε², and from 36 sums on at e⁻¹/(L + 1)."""
    reading = signal(blocks, branch_norms=torch.full((blocks,), ratio))
    found = [f for f in find([reading]) if f.rule == "hidden_growth"]
    assert bool(found) == told
    if told:
        assert found[0].number == pytest.approx(blocks * math.log(1 + ratio**2))
    # Growth that the size of the signal shows is told by another rule.
    grown = signal(blocks, rate=math.log(1 + ratio**2) / 2, branch_norms=torch.full((blocks,), ratio))
    assert "hidden_growth" not in {f.rule for f in find([grown])}


def test_a_small_embedding_is_no_hidden_growth():
    """The first sum is 200 times what comes in and nothing is brought back to size: its growth is there to be seen."""
    sizes = torch.cat([torch.ones(1), torch.full((44,), 200.0)])[:, None].expand(45, 4)
    ratios = torch.tensor([200.0] + [0.01] * 43)
    assert "hidden_growth" not in {f.rule for f in find([signal(44, signal=sizes, branch_norms=ratios)])}
    assert "hidden_growth" in {f.rule for f in find([signal(44, branch_norms=ratios)])}


@pytest.mark.parametrize("after", [True, False])
def test_layer_norm_after_each_sum_loses_the_input(after):
    found = {finding.rule for finding in find([look(stacked(50, after), data(4).inputs)])}
    assert ("hidden_growth" in found) == after and "signal_growth" not in found


class Encoder(nn.Module):
    """A transformer of torch's weights that reads its first token."""

    def __init__(self, depth: int, first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"dropout": 0.0, "batch_first": True, "norm_first": first}
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, **options) for _ in range(depth)))
        self.words, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(tokens))[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "first", "told"), [(60, False, True), (60, True, False), (12, False, False)])
def test_transformers_with_norms_after_their_sums(depth, first, told):
    """Of the first two, trained on the first token, one stays at a guess after 150 steps of Adam and one learns it."""
    tokens = torch.randint(50, (8, 12), generator=torch.Generator().manual_seed(0))
    found = {finding.rule for finding in find([look(Encoder(depth, first), tokens)])}
    assert ("hidden_growth" in found) == told


def test_inspect_tells_it_and_the_page_shows_it(tmp_path):
    report = sl.inspect(plain(40), data(), lenses=["layers"])
    assert report.verdict.startswith("Critical: The gradient fades exponentially from layer to layer")
    states = report.reading(LayerStates)
    assert states.samples == 32 and len(states.of_kind("weights")) == 41
    page = report.save(tmp_path / "page.html").read_text()
    assert "Signal and gradient by layer" in page and "Of 41 calls of weights" in page
