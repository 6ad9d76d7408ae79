import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens import zoo
from skiplens.base.errors import InvalidInputError, SettingsError, SkiplensError, TooLargeError
from skiplens.graph.functional import transformable
from tests import hugging_face
from tests.awkward_models import made
from tests.budget_calls import least_memory
from tests.networks import Formula, LinearResidual, drawn, noise
from tests.test_every_lens import fingerprint
from tests.tolerances import STANDARD_ERRORS, assert_close


def svdvals(matrix):
    return torch.linalg.svdvals(matrix.detach())


def test_linear_residual_blocks_in_closed_form():
    """A block is I + W, its branch W, its shortcut I, a span the product."""
    model = drawn(LinearResidual(depth=3, width=4))
    found = sl.jacobian_spectrum(
        model,
        noise(2, 4),
        blocks=["layers.0", ("layers.0", "layers.1"), ("layers.1", "output")],
        parts=("block", "branch", "shortcut"),
    )
    A, B, C = (torch.eye(4) + layer.weight for layer in model.layers)
    assert found.names == ("layers.0", "layers.0 -> layers.1", "layers.1 -> output", "network")
    expected = {"layers.0": A, "layers.0 -> layers.1": B @ A, "layers.1 -> output": C @ B, "network": C @ B @ A}
    for name, matrix in expected.items():
        assert_close(found.singular_values[name], svdvals(matrix).repeat_interleave(2))
    assert_close(found.without_shortcut["layers.0"], svdvals(model.layers[0].weight).repeat_interleave(2))
    assert_close(found.of_shortcut["layers.0"], torch.ones(8))
    assert found.counts == (8, 8, 8, 8) and set(found.methods) == {"exact"} and found.shortcuts == ("identity",)


TABLE = {
    (1, 1): (6.34753155877989, 0.605965100890551, 27.8164905062478),
    (1, 0): (6.00156025287056, 0.502071688340686, 20.9873029283528),
    (2, 1): (4.40472621788178, 1.18332180103523, 13.8808668256675),
    (3, 0): (3.39238771796386, 2.64462351568473, 10.4936514641764),
}


@pytest.mark.parametrize(("stride", "padding"), TABLE)
def test_convolutions_of_the_reference_table(stride, padding):
    """Section 9 of the theory note: K = Q(3, 18) on 2 × 6 × 6 inputs."""
    k = torch.arange(1, 55, dtype=torch.float64)
    layer = nn.Conv2d(2, 3, 3, stride, padding, bias=False)
    layer.weight.data.copy_(torch.sin(k * k).reshape(3, 2, 3, 3))
    values = sl.jacobian_spectrum(layer, noise(1, 2, 6, 6)).singular_values["network"]
    largest, smallest, frobenius = TABLE[stride, padding]
    assert_close(values[0], torch.tensor(largest))
    assert_close(values[-1], torch.tensor(smallest))
    assert_close(values.norm(), torch.tensor(frobenius))


def test_circular_convolution_has_the_singular_values_of_its_fourier_blocks():
    """Note 6(e): the union over frequencies of those of the (outputs × inputs) DFT matrices; pure Fourier oracle."""
    layer = drawn(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False))
    kernel = torch.zeros(3, 2, 6, 5)
    kernel[:, :, :3, :3] = layer.weight.detach()
    blocks = torch.fft.fft2(kernel).permute(2, 3, 0, 1)
    expected = torch.linalg.svdvals(blocks).flatten().sort(descending=True).values
    assert_close(sl.jacobian_spectrum(layer, noise(1, 2, 6, 5)).singular_values["network"], expected)


def reference_network(kind: str) -> nn.Module:
    """REF-M of the theory note: weights sin((k + 1000 t)²)/√fan_in, tensors numbered in its order."""
    names = {
        "chain": "mnist_chain",
        "res": "mnist_residual",
        "resavg": "mnist_residual_avgpool",
        "resiso": "mnist_residual_isopool",
    }
    model = zoo.build(names[kind])
    branch1, branch2 = model.block1.branch, model.block2.residual.branch
    shortcut = getattr(model.block2.residual, "shortcut", None)
    layers = [
        model.stem[0],
        branch1[2],
        branch1[5],
        getattr(shortcut, "projection", None),
        branch2[0],
        branch2[3],
        model.head[-1],
    ]
    for index, layer in enumerate(layers):
        for part, name in enumerate(("weight", "bias")):
            if layer is not None:
                tensor = getattr(layer, name)
                k = torch.arange(1, tensor.numel() + 1, dtype=torch.float64)
                entries = torch.sin((k + 1000 * (2 * index + part + 1)).square()) / layer.weight[0].numel() ** 0.5
                tensor.data.copy_(entries.reshape(tensor.shape))
    return model


REFERENCE = {
    "chain": (
        18.7704614480507,
        11.307901760441,
        7.53398550102234,
        3.76988136300329,
        105.695300474006,
        2.34921801506788,
    ),
    "res": (18.7390145874156, 11.0578649876238, 7.20839348662962, 3.49731931387425, 104.8180186872, 2.33249844752525),
    "resavg": (
        19.0453383519064,
        10.9898094255275,
        6.86849270008673,
        3.38847277262636,
        104.209625401201,
        2.33009087599901,
    ),
    "resiso": (
        18.8755185849907,
        11.242442981943,
        7.1448610068688,
        3.50927776684095,
        104.550064992472,
        2.33137899797109,
    ),
}


@pytest.mark.parametrize("kind", REFERENCE)
def test_mnist_networks_of_the_reference_table(kind):
    """REF-M: the joint Jacobian (80 × 5760) of eight images from the stem's output to the logits; tolerance 1e-9."""
    model = reference_network(kind)
    k = torch.arange(1, 6273, dtype=torch.float64)
    pixels = (0.5 + 0.5 * torch.sin(k * k)).reshape(8, 1, 28, 28)
    stem = model.stem(pixels).detach()
    first = torch.tensor([-0.392225806429235, -0.0414073408554333, -0.100791890727038])
    assert_close(stem.flatten()[:3], first, relative=1e-9)
    found = sl.jacobian_spectrum(
        nn.Sequential(model.block1, model.block2, model.head), stem, blocks=[], coupling="batch"
    )
    values = found.singular_values["network"]
    assert found.coupled and len(values) == 80
    numbers = [values[0], values[39], values[69], values[79], values.norm(), values.log().mean()]
    for number, expected in zip(numbers, REFERENCE[kind], strict=True):
        assert_close(number, torch.tensor(expected), relative=1e-9)
    if kind == "res":  # the same Jacobian named by its blocks
        spans = sl.jacobian_spectrum(model, pixels, blocks=[("block1", "output")], coupling="batch", network=False)
        assert_close(spans.singular_values["block1 -> output"], values, relative=1e-10)


def test_eval_mode_needs_no_coupling():
    model = zoo.build("mnist_residual")
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean, module.running_var = torch.zeros(module.num_features), torch.ones(module.num_features)
            module.track_running_stats = True
    model.eval()
    images = noise(2, 1, 28, 28)
    both = [sl.jacobian_spectrum(model, images, blocks=[], coupling=coupling) for coupling in ("sample", "batch")]
    assert not any(found.coupled for found in both)
    assert_close(both[0].singular_values["network"], both[1].singular_values["network"])
    one = [sl.jacobian_spectrum(model, images[i : i + 1], blocks=[]).singular_values["network"] for i in range(2)]
    assert_close(both[0].singular_values["network"], torch.cat(one).sort(descending=True).values)


def test_frozen_statistics_are_noted():
    model = drawn(Formula(lambda m, x: x + m.f(m.norm(x)), f=nn.Linear(3, 3), norm=nn.BatchNorm1d(3)))
    found = sl.jacobian_spectrum(model, noise(5, 3), coupling="sample")
    assert any("statistics were frozen" in note for note in found.notes)
    assert not sl.jacobian_spectrum(model.eval(), noise(5, 3)).notes


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [hugging_face.resnet_basic, hugging_face.vit, hugging_face.gpt2], ids=lambda f: f.__name__
)
def test_hugging_face_models_against_dense_jacobians(build):
    """Every block is measured; the last block's values are those of autograd through the graph."""
    model, inputs = hugging_face.built(build)
    before = fingerprint(model)
    found = sl.jacobian_spectrum(model, inputs)
    assert fingerprint(model) == before
    assert set(found.blocks) == {block.name for block in sl.find_residual_blocks(model, inputs)}
    assert all(bool((values.diff() <= 0).all()) for values in found.singular_values.values())
    assert set(found.methods) == {"exact"}
    if build is hugging_face.gpt2:
        assert any("start" in note and "embedding" in note for note in found.notes)
        embeds = model.transformer.wte(inputs["input_ids"]).detach()
        with transformable():
            J = torch.func.jacrev(lambda e: model(inputs_embeds=e).logits)(embeds[:1]).detach()
        own = sl.jacobian_spectrum(model, {"input_ids": inputs["input_ids"][:1]}, blocks=[]).singular_values["network"]
        assert_close(own, svdvals(J.reshape(-1, embeds[:1].numel())))


def test_lanczos_has_weights_that_add_up_to_one():
    model = drawn(LinearResidual(depth=2, width=30))
    found = sl.jacobian_spectrum(model, noise(2, 30), method="lanczos", steps=10, probes=2)
    exact = sl.jacobian_spectrum(model, noise(2, 30))
    for name in found.names:
        assert found.weights[name].sum() == pytest.approx(1)
        assert_close(found.singular_values[name][0], exact.singular_values[name][0], relative=1e-3)
    assert set(found.methods) == {"lanczos"} and any("Lanczos steps" in note for note in found.notes)
    again = sl.jacobian_spectrum(model, noise(2, 30), method="lanczos", steps=10, probes=2)
    assert torch.equal(again.singular_values["network"], found.singular_values["network"])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"coupling": "both"}, InvalidInputError, "coupling='both'; ask for one of 'auto', 'sample', 'batch'"),
        ({"method": "svd"}, InvalidInputError, "method='svd'; ask for one of 'auto', 'exact', 'lanczos'"),
        ({"blocks": ["nowhere"]}, InvalidInputError, "no block 'nowhere'"),
        ({"blocks": [("layers.1", "layers.0")]}, InvalidInputError, "runs backwards"),
        ({"blocks": [("layers.1",)]}, InvalidInputError, "a span is a pair"),
        ({"blocks": [], "network": False}, InvalidInputError, "Nothing was chosen"),
        ({"steps": 0}, InvalidInputError, "steps=0, probes=4; ask for at least 1"),
        ({"parts": ("branch",)}, InvalidInputError, "'block' is always measured"),
        ({"parts": ("root",)}, SettingsError, "must be one of block, branch, shortcut"),
        ({"step": 3}, TypeError, "unexpected keyword argument 'step'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        sl.jacobian_spectrum(LinearResidual(depth=2), noise(2, 3), **arguments)


def test_bad_inputs_are_named():
    with pytest.raises(InvalidInputError, match="NaN or infinite values"):
        sl.jacobian_spectrum(LinearResidual(), torch.full((2, 3), torch.nan))
    with pytest.raises(SkiplensError, match="Module"):
        sl.jacobian_spectrum(3, noise(2, 3))


def test_blocks_that_fold_samples_are_refused_by_name():
    model = Formula(lambda m, x: (x + m.f(x)).reshape(2, -1), f=drawn(nn.Linear(3, 3)))
    with pytest.raises(InvalidInputError, match="'network' maps shape"):
        sl.jacobian_spectrum(model, noise(4, 3), coupling="sample")


@pytest.mark.parametrize("method", ["exact", "lanczos"])
def test_values_that_are_not_finite_are_refused(method):
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    with pytest.raises(InvalidInputError, match=r"Jacobian of 'network' are NaN or infinite: look for parameters"):
        sl.jacobian_spectrum(model, torch.ones(2, 3), method=method)


def test_a_slope_that_is_not_finite_is_refused():
    root = Formula(lambda m, x: m.f(x).sqrt(), f=nn.Linear(3, 2))  # its value at 0 is finite, its slope is not
    with torch.no_grad():
        root.f.weight.zero_()
        root.f.bias.zero_()
    with pytest.raises(InvalidInputError, match=r"Jacobian of 'network' are NaN or infinite"):
        sl.jacobian_spectrum(root, torch.ones(2, 3), method="exact")


def curved() -> nn.Module:
    """x + tanh(x A) of a width at which a sample takes more bytes than its graph."""
    rule = lambda m, x: m.head(x + torch.tanh(m.inner(x)))  # noqa: E731 - one formula
    return drawn(Formula(rule, inner=nn.Linear(12, 12), head=nn.Linear(12, 5)))


@pytest.mark.parametrize(("method", "times", "pieces"), [("exact", 4, 3), ("auto", 1, 9)])
def test_a_batch_in_pieces_has_the_singular_values_of_the_whole(method, times, pieces):
    model, inputs = curved(), noise(9, 12)
    whole = sl.jacobian_spectrum(model, inputs, method=method)
    least = least_memory(lambda memory: sl.jacobian_spectrum(model, inputs, method=method, memory=memory))
    found = sl.jacobian_spectrum(model, inputs, method=method, memory=times * least)
    assert any(f"in {pieces} pieces" in note for note in found.notes) and found.samples == 9
    assert found.counts == whole.counts
    for name, values in whole.singular_values.items():
        if method == "exact":
            assert_close(found.singular_values[name], values)
        assert_close(found.weights[name].sum(), torch.tensor(1.0))
        assert_close(found.singular_values[name][0], values[0], relative=1e-8)  # of Lanczos too


def test_a_model_without_parameters_is_split_too():
    model = nn.Sequential(nn.Tanh(), nn.Flatten())
    least = least_memory(lambda memory: sl.jacobian_spectrum(model, noise(4, 3), memory=memory))
    found = sl.jacobian_spectrum(model, noise(4, 3), memory=least)
    assert_close(found.singular_values["network"][0], (1 - torch.tanh(noise(4, 3)).square()).max())


def test_a_density_in_pieces_is_that_of_the_whole():
    model, inputs, asked = curved(), noise(8, 12), {"method": "lanczos", "steps": 12, "probes": 200}
    exact = sl.jacobian_spectrum(model, inputs, method="exact")
    least = least_memory(lambda memory: sl.jacobian_spectrum(model, inputs, **asked, memory=memory))
    found = sl.jacobian_spectrum(model, inputs, **asked, memory=2 * least)
    assert any("in 4 pieces" in note for note in found.notes) and set(found.methods) == {"lanczos"}
    for name, values in exact.singular_values.items():
        # second moment of the density: a mean over 800 draws of Σ σ² u², whose variance is below 2 E σ⁴ / 12
        expected, density = values.square().mean(), found.singular_values[name].square() @ found.weights[name]
        error = (2 * values.pow(4).mean() / 12 / 800).sqrt()
        assert abs(float(density - expected)) < STANDARD_ERRORS * float(error)


def test_a_coupled_batch_that_does_not_fit_is_refused_with_the_least():
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), noise(6, 4)
    least = least_memory(lambda memory: sl.jacobian_spectrum(model, inputs, coupling="batch", memory=memory))
    sl.jacobian_spectrum(model, inputs, coupling="batch", memory=least)
    with pytest.raises(TooLargeError, match=rf"the Jacobians of 6 sample\(s\): the least that does is {least} "):
        sl.jacobian_spectrum(model, inputs, coupling="batch", memory=least - 1)


def test_an_operation_that_takes_one_vector_at_a_time():
    """Products with a sparse matrix have no rule for several vectors at once."""
    model, (inputs, _) = made("sparse")
    model, inputs = model.double(), inputs.double()
    found = sl.jacobian_spectrum(model, inputs, method="exact")
    rows = [torch.autograd.functional.jacobian(model, one[None])[0, :, 0] for one in inputs]
    assert_close(found.singular_values["network"], svdvals(torch.stack(rows)).flatten().sort(descending=True).values)
