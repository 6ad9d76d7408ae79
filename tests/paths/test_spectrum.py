import dataclasses
import itertools
import math

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, NoFrozenFormError, TooLargeError
from skiplens.graph.dissect import dissect
from skiplens.paths.expanders import PathOptions
from skiplens.paths.spectrum import measure
from tests.networks import CrossAttending, DenseLayers, Formula, LinearResidual, chain, drawn, linear, noise
from tests.paths.frozen_by_hand import Perceptrons, coefficients
from tests.tolerances import STANDARD_ERRORS, assert_close


def subsets(model: LinearResidual, inputs: torch.Tensor) -> dict[tuple[int, ...], torch.Tensor]:
    """The contribution of each set of branches of a linear network, one product of matrices each."""
    found = {}
    for used in itertools.product((0, 1), repeat=len(model.layers)):
        state = inputs
        for layer, use in zip(model.layers, used, strict=True):
            state = model.scale * layer(state) if use else state
        found[used] = state.detach()
    return found


@pytest.fixture
def linear_network():
    return drawn(LinearResidual(depth=4, width=3, scale=0.8)), noise(5, 3)


class TestContract:
    def test_energies_and_depths_from_all_subsets(self, linear_network):
        model, inputs = linear_network
        paths = subsets(model, inputs)
        orders = torch.stack([sum(c for used, c in paths.items() if sum(used) == r) for r in range(5)])
        y = sum(paths.values())
        energy = orders.square().sum((1, 2))
        spectrum = sl.path_spectrum(model, inputs, blocks=True, pairs=True)
        assert isinstance(spectrum, sl.PathSpectrum) and spectrum.energy.shape == (5,)
        assert_close(spectrum.energy, energy)
        weights = torch.arange(5.0)
        assert spectrum.mean_depth == pytest.approx(float(energy @ weights / energy.sum()), rel=1e-12)
        assert spectrum.peak_depth == int(energy.argmax())
        coherent = sum(r * float((orders[r] * y).sum()) for r in range(5)) / float((y * y).sum())
        assert spectrum.coherent_depth == pytest.approx(coherent, rel=1e-12)
        assert float(spectrum.shares.sum()) == pytest.approx(1.0, rel=1e-12)
        assert_close(spectrum.sample_energy, orders.square().sum(2).T)
        variance = float(energy / energy.sum() @ (weights - spectrum.mean_depth).square())
        assert spectrum.depth_variance == pytest.approx(variance, rel=1e-12)

    def test_blocks_and_pairs_from_all_subsets(self, linear_network):
        model, inputs = linear_network
        paths = subsets(model, inputs)
        y = sum(paths.values())
        spectrum = sl.path_spectrum(model, inputs, pairs=True)
        for i, j in itertools.product(range(4), repeat=2):
            both = sum(c for used, c in paths.items() if used[i] and used[j])
            assert float(spectrum.pair_energy[i, j]) == pytest.approx(float(both.square().sum()), rel=1e-11)
        for i in range(4):
            through = sum(c for used, c in paths.items() if used[i])
            assert float(spectrum.block_energy[i]) == pytest.approx(float(through.square().sum()), rel=1e-11)
            assert float(spectrum.block_shares[i]) == pytest.approx(
                float((through * y).sum() / (y * y).sum()), rel=1e-11
            )
        assert float(spectrum.block_shares.sum()) == pytest.approx(spectrum.coherent_depth, rel=1e-12)

    def test_incoherent_energies_from_all_subsets(self, linear_network):
        model, inputs = linear_network
        exact = torch.zeros(5)
        for used, c in subsets(model, inputs).items():
            exact[sum(used)] += c.square().sum()
        spectrum = sl.path_spectrum(model, inputs, signs=200)
        deviation = (spectrum.incoherent - exact).abs()
        # orders 0 and 4 have one path each, so that signs change nothing
        assert bool((deviation <= STANDARD_ERRORS * spectrum.incoherent_error + 1e-12 * exact).all())
        assert float(spectrum.incoherent_error[2]) > 0

    def test_truncation_says_what_it_left_out(self, linear_network):
        model, inputs = linear_network
        whole, short = sl.path_spectrum(model, inputs), sl.path_spectrum(model, inputs, max_order=1)
        assert_close(short.energy, whole.energy[:2])
        assert short.coherent_depth == pytest.approx(whole.coherent_depth, rel=1e-12)
        rest = coefficients(model, inputs)[2:].sum(0).square().sum()
        assert short.remainder == pytest.approx(float(rest), rel=1e-12) and whole.remainder == 0.0
        assert "more than 1 branches were left out" in short.notes[0] and short.law == ""

    def test_the_class_mean_can_be_removed(self, linear_network):
        model, inputs = linear_network
        stack = coefficients(model, inputs)
        centred = (stack - stack.mean(-1, keepdim=True)).square().sum((1, 2))
        assert_close(sl.path_spectrum(model, inputs, centre=True).energy, centred)

    def test_the_mean_over_samples_can_be_removed(self, linear_network):
        model, inputs = linear_network
        stack = coefficients(model, inputs)
        stack = stack - stack.mean(1, keepdim=True)
        spectrum = sl.path_spectrum(model, inputs, centre_samples=True)
        assert_close(spectrum.energy, stack.square().sum((1, 2)))
        y = stack.sum(0)
        coherent = sum(r * float((stack[r] * y).sum()) for r in range(5)) / float((y * y).sum())
        assert spectrum.coherent_depth == pytest.approx(coherent, rel=1e-12)
        both = stack - stack.mean(-1, keepdim=True)
        assert_close(
            sl.path_spectrum(model, inputs, centre=True, centre_samples=True).energy, both.square().sum((1, 2))
        )


class TestDerivatives:
    def test_jacobian_of_a_linear_network_along_its_input_is_its_signal(self, linear_network):
        model, inputs = linear_network
        spectrum = sl.path_spectrum(model, inputs, of="jacobian", direction=inputs)
        assert_close(spectrum.energy, sl.path_spectrum(model, inputs).energy)

    def test_gradient_of_a_linear_network_is_the_signal_of_the_transposed_one(self, linear_network):
        model, inputs = linear_network
        transposed = LinearResidual(depth=4, width=3, scale=0.8)
        for layer, other in zip(transposed.layers, reversed(model.layers), strict=True):
            layer.weight.data = other.weight.data.T.clone()
        spectrum = sl.path_spectrum(model, inputs, of="gradient", direction=inputs, blocks=True)
        expected = sl.path_spectrum(transposed, inputs, blocks=True)
        assert_close(spectrum.energy, expected.energy)
        assert_close(spectrum.block_energy, expected.block_energy.flip(0))

    @pytest.mark.slow
    def test_random_directions_average_to_the_frobenius_norm(self, linear_network):
        model, _ = linear_network
        exact = sl.path_spectrum(model, torch.eye(3), of="signal").energy  # the columns of each coefficient's matrix
        network, inputs = dissect(model, noise(1, 3)), noise(1, 3)
        options = [PathOptions(seed=seed) for seed in range(40)]
        draws = torch.stack([measure(network, inputs, "jacobian", one).energy for one in options])
        error = draws.std(0) / len(draws) ** 0.5
        assert bool(((draws.mean(0) - exact).abs() <= STANDARD_ERRORS * error).all())
        averaged = sl.path_spectrum(model, noise(1, 3), of="jacobian", directions=3)
        assert averaged.energy.shape == (5,) and not torch.equal(averaged.energy, draws[0])

    def test_weight_gradients_add_up_to_those_of_autograd(self):
        model, inputs = drawn(Perceptrons(3, hidden=8)), noise(4, 3)
        direction = noise(4, 2, seed=5)
        spectrum = sl.path_spectrum(model, inputs, of="gradient", direction=direction, weights=True)
        last = spectrum.block_names[-1]
        assert set(spectrum.weight_energy) == set(spectrum.block_names)
        gradients = torch.autograd.grad(
            model(inputs), [*model.first[-1].parameters(), *model.second[-1].parameters()], direction
        )
        energy = spectrum.weight_energy[last]  # from the last block one way leads to the output, through its own branch
        assert float(energy[1]) == pytest.approx(float(sum(g.square().sum() for g in gradients)), rel=1e-12)
        assert float(energy.sum()) == float(energy[1])

    def test_weight_gradients_by_whole_paths_and_by_the_branches_behind_mirror_each_other(self):
        """In a linear network the first block has no branch before it and the last none behind it."""
        model, inputs = drawn(LinearResidual(depth=4, width=3, scale=0.8)), noise(5, 3)
        spectrum = sl.path_spectrum(model, inputs, of="gradient", direction=noise(5, 3, seed=1), weights=True)
        behind, whole = spectrum.weight_energy, spectrum.weight_path_energy
        assert_close(whole["layers.0"], behind["layers.0"])
        three = LinearResidual(depth=3, width=3, scale=0.8)
        three.load_state_dict({f"layers.{i}.weight": model.layers[i].weight for i in range(3)})
        read = coefficients(three, inputs)
        expected = torch.stack([(0.8 * noise(5, 3, seed=1).T @ u).square().sum() for u in read])
        assert_close(whole["layers.3"][1:], expected)
        assert float(whole["layers.3"][0]) == 0

    def test_weights_that_whole_paths_leave_out_are_named(self):
        model = drawn(Formula(lambda m, x: x + x @ (m.w * 2), w=nn.Parameter(torch.rand(3, 3))))
        spectrum = sl.path_spectrum(model, noise(2, 3), of="gradient", weights=True)
        assert any("whole paths leaves out w: what they read" in note for note in spectrum.notes)


class TestTheory:
    def test_equal_orthogonal_blocks_follow_the_squared_binomial_law(self):
        model = LinearResidual(depth=12, width=2, scale=0.5)
        for layer in model.layers:
            nn.init.eye_(layer.weight)
        spectrum = sl.path_spectrum(model, torch.ones(1, 2))
        assert spectrum.law == "squared_binomial"
        assert spectrum.depth_ratio == pytest.approx(0.5, rel=1e-6) and spectrum.law_distance < 1e-9

    def test_random_zero_mean_branches_follow_the_binomial_law_with_their_gain(self, generator):
        """The note's table: total variation 0.011 to 0.021 for q = 20 and width 400; here within its sampling error."""
        depth, width, gain = 8, 200, 0.5
        model, shares = Perceptrons(depth, width, width), []
        model.head = nn.Identity()
        network = dissect(model, torch.zeros(2, width))  # it reads whatever weights the model has when it runs
        for _ in range(6):
            with torch.no_grad():
                for layer, scale in [(w, 2.0) for w in model.first] + [(v, gain) for v in model.second]:
                    layer.weight.normal_(0, math.sqrt(scale / width), generator=generator)
                    layer.bias.zero_()
            inputs = torch.randn(2, width, generator=generator)
            shares.append(measure(network, inputs).distribution)
        shares = torch.stack(shares)
        expected = torch.tensor([math.comb(depth, r) * gain**r / (1 + gain) ** depth for r in range(depth + 1)])
        error = shares.std(0) / math.sqrt(len(shares))
        assert bool(((shares.mean(0) - expected).abs() <= STANDARD_ERRORS * error + 0.01).all())  # 0.01: finite width

    def test_random_rectified_branches_follow_the_squared_law_with_the_notes_ratio(self, generator):
        """The note: x + R(Wx) with variance 1/n has β_eff = 0.573 far from the ends; the binomial law is wrong."""
        depth, width = 16, 200

        class Rectified(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))

            def forward(self, x):
                for layer in self.layers:
                    x = x + F.relu(layer(x))
                return x

        model = Rectified()
        for layer in model.layers:
            layer.weight.data.normal_(0, width**-0.5, generator=generator)
        spectrum = sl.path_spectrum(model, torch.randn(4, width, generator=generator))
        assert spectrum.law in ("squared_binomial", "rectified_mean_field")
        assert spectrum.depth_ratio == pytest.approx(0.6, abs=0.05)  # 0.601 in the note at q = 20, its spread over nets
        assert spectrum.law_distance < 0.06


class TestUnusualModels:
    def test_a_chain_is_a_single_bar(self):
        model, inputs = chain(), noise(2, 3)
        spectrum = sl.path_spectrum(model, inputs)
        assert_close(spectrum.energy, model(inputs).square().sum()[None].detach())
        assert spectrum.mean_depth == 0 and spectrum.coherent_depth == 0 and spectrum.law == ""
        assert "no residual join" in spectrum.notes[0]

    def test_concatenating_networks_are_explained(self):
        spectrum = sl.path_spectrum(drawn(DenseLayers()), noise(2, 2, 4, 4))
        assert spectrum.energy.shape == (1,)
        assert any("concatenate instead of adding" in note for note in spectrum.notes)

    def test_integer_inputs_start_at_their_embedding(self):
        words = nn.Embedding(7, 3)
        model = drawn(Formula(lambda m, ids: m.words(ids) + m.f(m.words(ids)), words=words, f=linear()))
        for of in ("signal", "jacobian", "gradient"):
            spectrum = sl.path_spectrum(model, torch.tensor([[1, 2, 6]]), of=of)
            assert any("inputs are integers" in note and "embedding" in note for note in spectrum.notes)

    def test_branches_that_read_another_input_too(self):
        model, inputs = drawn(CrossAttending()), (noise(2, 3, 4), noise(2, 5, 4, seed=1))
        stack = coefficients(model, inputs)
        assert_close(stack.sum(0), model(*inputs).detach())
        energy = sl.path_spectrum(model, inputs).energy
        # the values of the second block come from the other input, so that no path leads through both blocks
        assert energy.shape == (3,) and energy[1] > 0 and energy[2] == 0

    def test_a_sum_of_two_inputs_is_no_join(self):
        model = drawn(Formula(lambda m, x, z: m.f(x) + m.g(z), f=linear(), g=linear()))
        spectrum = sl.path_spectrum(model, (noise(2, 3), noise(2, 3, seed=1)))
        assert spectrum.energy.shape == (1,) and "no residual join" in spectrum.notes[0]

    def test_a_zero_output_has_no_depth(self):
        model = LinearResidual(depth=2, width=2)
        spectrum = sl.path_spectrum(model, torch.zeros(1, 2))
        assert math.isnan(spectrum.mean_depth) and math.isnan(spectrum.coherent_depth)


class TestMemory:
    @pytest.mark.parametrize("of", ["signal", "jacobian", "gradient"])
    def test_pieces_give_the_same_numbers(self, of):
        model, inputs = drawn(Perceptrons(3)), noise(7, 3)
        whole = sl.path_spectrum(model, inputs, of=of, signs=2, blocks=True)
        pieces = sl.path_spectrum(model, inputs, of=of, signs=2, blocks=True, memory=3000)
        assert any("pieces to fit in memory" in note for note in pieces.notes)
        for name in ("energy", "shares", "sample_energy", "block_energy", "block_shares", "incoherent"):
            assert_close(getattr(pieces, name), getattr(whole, name), relative=1e-12)

    def test_too_little_memory_for_one_sample(self):
        with pytest.raises(TooLargeError, match=r"1 sample\(s\) through 3 blocks needs.*max_order=…"):
            sl.path_spectrum(drawn(Perceptrons(3)), noise(7, 3), memory=100)

    def test_weight_gradients_want_all_samples_at_once(self):
        with pytest.raises(InvalidInputError, match=r"weights=True adds up.*Look at fewer samples"):
            sl.path_spectrum(drawn(Perceptrons(3)), noise(7, 3), of="gradient", weights=True, memory=3000)

    def test_the_mean_over_samples_wants_all_of_them_at_once(self):
        with pytest.raises(InvalidInputError, match=r"centre_samples=True removes.*Look at fewer samples"):
            sl.path_spectrum(drawn(Perceptrons(3)), noise(7, 3), centre_samples=True, memory=3000)


class TestBadInput:
    @pytest.fixture(autouse=True)
    def as_for_a_user(self, monkeypatch):
        """Types are checked in tests alone."""
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)

    def refused(self, match, error=InvalidInputError, of="signal", inputs=None, **options):
        with pytest.raises(error, match=match):
            sl.path_spectrum(drawn(Perceptrons(2)), noise(4, 3) if inputs is None else inputs, of=of, **options)

    def test_options(self):
        self.refused(r"of='spectrum'; ask for one of 'signal', 'jacobian', 'gradient'", of="spectrum")
        self.refused("unexpected keyword argument 'sign'", TypeError, sign=3)
        self.refused("signs=1; ask for 0", signs=1)
        self.refused("directions=0; ask for at least 1", directions=0)
        self.refused("max_order=-1; the shortest", max_order=-1)

    def test_directions(self):
        self.refused("direction means nothing for of='signal'", direction=noise(4, 3))
        self.refused(
            r"shape \(4, 2\); it must have the shape of the input, \(4, 3\)", of="jacobian", direction=noise(4, 2)
        )
        self.refused(r"shape of the output, \(4, 2\)", of="gradient", direction=noise(4, 3))
        model = drawn(CrossAttending())
        with pytest.raises(InvalidInputError, match="starts in 2 places"):
            sl.path_spectrum(model, (noise(2, 3, 4), noise(2, 5, 4)), of="jacobian", direction=noise(2, 3, 4))

    def test_inputs_that_are_not_finite(self):
        self.refused("NaN or infinite values in 4 of 4 samples", inputs=torch.full((4, 3), math.nan))

    def test_an_operation_without_a_frozen_form(self):
        model = drawn(Formula(lambda m, x: x + torch.sigmoid(m.f(x)), f=linear()))
        with pytest.raises(NoFrozenFormError, match=r"aten\.sigmoid"):
            sl.path_spectrum(model, noise(2, 3))
        assert sl.path_spectrum(model, noise(2, 3), of="jacobian").energy.shape == (2,)

    def test_no_model(self):
        with pytest.raises(InvalidInputError, match=r"nn\.Module"):
            sl.path_spectrum("resnet", noise(2, 3))


def test_what_is_decomposed_may_still_be_the_third_argument(linear_network):
    model, inputs = linear_network
    with pytest.warns(DeprecationWarning, match="is the order of old"):
        old = sl.path_spectrum(model, inputs, "jacobian")
    assert torch.equal(old.energy, sl.path_spectrum(model, inputs, of="jacobian").energy)


def test_the_reading_is_frozen(linear_network):
    spectrum = sl.path_spectrum(*linear_network)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spectrum.energy = None


def test_single_precision_models_work_as_they_are():
    model, inputs = drawn(Perceptrons(3, hidden=8)), noise(4, 3)
    double = sl.path_spectrum(model, inputs).energy
    single = sl.path_spectrum(model.float(), inputs.float()).energy
    assert_close(single, double, relative=1e-5)
