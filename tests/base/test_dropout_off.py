import torch
from torch import nn

from skiplens.base.preserve_state import dropout_off


class Own(nn.Module):
    """Rates of its own, as attention modules keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_dropout, self.scale = 0.3, 0.5

    def forward(self, x):
        return self.scale * nn.functional.dropout(x, self.attention_dropout, self.training)


class DropPath(nn.Module):
    def forward(self, x):
        return x * torch.rand(len(x), 1).gt(0.5) if self.training else x


class StochasticDepth(nn.Module):
    """As torchvision has it: a rate called p, read only in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.5

    def forward(self, x):
        return x * torch.rand(len(x), 1).gt(self.p) if self.training else x


def network() -> nn.Module:
    kept = nn.Dropout(0.0)
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), Own(), DropPath(), kept)


def test_nothing_is_drawn_and_batch_norm_stays_in_its_mode():
    model, x = network(), torch.randn(8, 3)
    with dropout_off(model) as places:
        first, second = model(x), model(x)
        assert places == ("2", "3", "4") and model.training and model[1].training and model[3].scale == 0.5
    assert torch.equal(first, second)
    wanted = 0.5 * nn.functional.batch_norm(model[0](x), None, None, training=True)
    torch.testing.assert_close(first, wanted)


def test_stochastic_depth_draws_nothing():
    model, x = nn.Sequential(nn.Linear(3, 3), StochasticDepth()), torch.randn(8, 3)
    with dropout_off(model) as places:
        assert places == ("1",) and torch.equal(model(x), model(x))
    assert model[1].training and model[1].p == 0.5


def test_all_is_as_before_also_after_an_error():
    model = network()
    before = [(module.training, dict(vars(module))) for module in model.modules()]
    try:
        with dropout_off(model):
            raise RuntimeError
    except RuntimeError:
        pass
    after = [(module.training, dict(vars(module))) for module in model.modules()]
    assert [flag for flag, _ in before] == [flag for flag, _ in after]
    assert all(left.keys() == right.keys() for (_, left), (_, right) in zip(before, after, strict=True))
    assert model[3].attention_dropout == 0.3


def test_attention_and_recurrent_layers_keep_no_rate():
    layer, x = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.4, batch_first=True), torch.randn(2, 3, 4)
    recurrent = nn.LSTM(4, 4, num_layers=2, dropout=0.4, batch_first=True)
    for model, call in ((layer, lambda: layer(x)), (recurrent, lambda: recurrent(x)[0])):
        with dropout_off(model) as places:
            assert places and torch.equal(call(), call())
        assert not torch.equal(call(), call())


def test_a_model_in_evaluation_mode_is_left_alone():
    with dropout_off(network().eval()) as places:
        assert places == ()


class Skipping(nn.Module):
    """Draws whether to leave out a layer, also at the rate 0, and lets the draw decide in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layerdrop, self.norm = 0.0, nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x) if not self.training or torch.rand([]) >= self.layerdrop else x


def test_no_layer_is_left_out_by_a_draw():
    model = Skipping()
    with dropout_off(model):
        before = torch.get_rng_state()
        model(torch.randn(2, 3, generator=torch.Generator().manual_seed(0)))
        assert torch.equal(before, torch.get_rng_state()) and model.norm.training
    assert model.training


class Asking(nn.Module):
    """Reads the rate of a module that it never calls, as fused attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return nn.functional.dropout(x, self.drop.p if self.training else 0.0)


def test_a_rate_that_the_module_around_it_reads_is_zero_meanwhile():
    model, x = Asking(), torch.randn(8, 3)
    with dropout_off(model) as places:
        assert places == ("drop",) and torch.equal(model(x), x)
    assert model.drop.p == 0.5 and model.drop.training and not torch.equal(model(x), x)
