import copy
import pickle

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens import zoo
from skiplens.base.errors import InvalidInputError, NotResidualError
from skiplens.edits import surgery
from skiplens.edits.surgery import PoolSkip
from skiplens.zoo.layers import Residual
from tests import hugging_face
from tests.networks import Formula, LinearResidual, drawn, noise
from tests.test_every_lens import fingerprint
from tests.tolerances import assert_close

CHANGES = {
    "mnist_residual_avgpool": surgery.add_average_pool_skips,
    "mnist_residual_isopool": surgery.add_isometric_skips,
}
images = noise(2, 1, 28, 28)


@pytest.mark.parametrize("name", CHANGES)
def test_changed_network_is_the_zoos_own(name):
    """The zoo builds the authors' networks with pools from the start: same weights, same outputs, to the bit."""
    model = zoo.build("mnist_residual")
    before = fingerprint(model)
    changed = CHANGES[name](model, images)
    assert fingerprint(model) == before
    assert torch.equal(changed(images), zoo.build(name)(images))
    assert list(changed.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("name", CHANGES)
def test_and_back(name):
    model = zoo.build("mnist_residual")
    changed = CHANGES[name](model, images)
    back = surgery.remove_pool_skips(changed)
    assert torch.equal(back(images), model(images)) and not surgery.pool_skips(back)
    assert len(surgery.pool_skips(changed)) == 1  # the changed one keeps its pools
    assert torch.equal(surgery.remove_pool_skips(zoo.build(name))(images), model(images))


def test_changed_networks_are_copied_pickled_loaded_and_trained():
    changed = surgery.add_isometric_skips(zoo.build("mnist_residual"), images)
    for other in (copy.deepcopy(changed), pickle.loads(pickle.dumps(changed))):
        assert torch.equal(other(images), changed(images))
    other = zoo.build("mnist_residual", seed=5)
    other.load_state_dict(changed.state_dict())
    assert torch.equal(other(images), zoo.build("mnist_residual")(images))
    changed(images).sum().backward()
    assert all(parameter.grad is not None for parameter in changed.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("inputs", "outputs", "size"), [(5, 20, 3), (4, 8, 2), (2, 7, 2), (3, 3, 1), (6, 4, 2)])
def test_isometric_pool_has_all_singular_values_one(inputs, outputs, size, dtype):
    """Also when channels grow; the oracle is the explicit matrix, column by column."""
    pool = PoolSkip.of("isometric", size, inputs, outputs)
    basis = torch.eye(inputs * (2 * size) ** 2, dtype=dtype).reshape(-1, inputs, 2 * size, 2 * size)
    values = torch.linalg.svdvals(pool.pool(basis).flatten(1))
    assert len(values) == outputs * 4
    assert_close(values, torch.ones_like(values))


def test_average_pool_of_the_authors_has_ones_and_zeros():
    """E10 of the note: 5 -> 20 channels, 12 × 12, windows of 3: 80 ones and 240 zeros."""
    basis = torch.eye(720).reshape(-1, 5, 12, 12)
    values = torch.linalg.svdvals(PoolSkip.of("average", 3, 5, 20).pool(basis).flatten(1))
    assert_close(values, torch.cat([torch.ones(80), torch.zeros(240)]))


def test_a_projection_with_its_norm_is_changed_as_a_whole():
    """Hugging Face's shortcut is a convolution and a batch norm: the pool is added after both."""
    model, inputs = hugging_face.built(hugging_face.resnet_basic)
    changed = surgery.add_isometric_skips(model, inputs)
    assert list(surgery.pool_skips(changed)) == ["resnet.encoder.stages.1.layers.0.shortcut"]
    shortcut, value = "resnet.encoder.stages.1.layers.0.shortcut", noise(2, 8, 4, 4)
    pool = surgery.pool_skips(changed)[shortcut]
    difference = changed.get_submodule(shortcut)(value) - model.get_submodule(shortcut)(value)
    assert_close(difference, pool.pool(value))


def test_blocks_can_be_named():
    model = zoo.build("digits_resnet")
    changed = surgery.add_average_pool_skips(model, images, ["stages.2.0.residual"])
    assert list(surgery.pool_skips(changed)) == ["stages.2.0.residual.shortcut"]
    assert len(surgery.pool_skips(surgery.add_average_pool_skips(model, images))) == 2


def gated(**parts):
    return Formula(lambda m, x: torch.sigmoid(m.p(x)) * x + m.f(x), **parts)


def projected(outputs, stride, inputs=2):
    return drawn(Residual(nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.Conv2d(inputs, outputs, 1, stride)))


def tangled():
    """The shortcut is a bare operation of the block itself, without a module of its own."""
    weight = nn.Parameter(torch.ones(3, 2, 1, 1))
    return Formula(
        lambda m, x: torch.nn.functional.conv2d(x, m.w) + m.g(torch.relu(m.f(x))),
        w=weight,
        f=nn.Conv2d(2, 3, 1),
        g=nn.Conv2d(3, 3, 1),
    )


@pytest.mark.parametrize(
    ("model", "inputs", "blocks", "error", "words"),
    [
        (LinearResidual(), noise(2, 3), None, NotResidualError, "no projection shortcut .*it has: identity"),
        (nn.Linear(3, 3), noise(2, 3), None, NotResidualError, "no shortcuts at all"),
        (LinearResidual(), noise(2, 3), ["layers.0"], InvalidInputError, "of kind identity, not a projection"),
        (LinearResidual(), noise(2, 3), ["layer.0"], InvalidInputError, "no block 'layer.0'"),
        (
            drawn(Residual(nn.Linear(3, 2), nn.Linear(3, 2))),
            noise(2, 3),
            None,
            InvalidInputError,
            "pools are for images",
        ),
        (projected(4, 2), noise(2, 2, 7, 7), None, InvalidInputError, "7 × 7 pixels cannot be pooled to 4 × 4"),
        (projected(9, 2), noise(2, 2, 6, 6), None, InvalidInputError, "makes at most 8. Add an average pool"),
        (tangled(), noise(2, 2, 4, 4), None, InvalidInputError, "nn.Module of its own"),
    ],
    ids=range(8),
)
def test_what_cannot_be_changed_is_named(model, inputs, blocks, error, words):
    with pytest.raises(error, match=words):
        surgery.add_isometric_skips(model.double(), inputs, blocks)


def test_a_shortcut_that_is_not_linear_is_refused():
    model = gated(p=nn.Conv2d(2, 2, 1), f=nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 2, 1)))
    (block,) = sl.find_residual_blocks(model, noise(2, 2, 4, 4))
    with pytest.raises(InvalidInputError, match="is not linear"):
        surgery.add_average_pool_skips(model, noise(2, 2, 4, 4), [block.name])


def test_an_average_pool_cannot_drop_channels():
    with pytest.raises(InvalidInputError, match=r"makes at least 2\. Add an isometric pool"):
        surgery.add_average_pool_skips(projected(1, 2), noise(2, 2, 6, 6))


def test_a_shortcut_that_changes_the_number_of_samples_is_refused():
    block = sl.find_residual_blocks(projected(4, 2), noise(2, 2, 6, 6))[0]
    from dataclasses import replace

    from skiplens.edits.surgery import _pool_for

    for before, after in (((4, 2, 6, 6), (2, 4, 3, 3)), ((0, 2, 6, 6), (0, 4, 3, 3)), ((2, 2, 6, 6), (2, 0, 3, 3))):
        with pytest.raises(InvalidInputError, match="empty or changes the number of samples"):
            _pool_for(replace(block, input_shape=before, output_shape=after), "average")


def test_pools_are_added_once_and_removed_once():
    changed = surgery.add_average_pool_skips(zoo.build("mnist_residual"), images)
    with pytest.raises(InvalidInputError, match=r"was added to block2.residual.shortcut before"):
        surgery.add_isometric_skips(changed, images)
    with pytest.raises(InvalidInputError, match="there is none to remove"):
        surgery.remove_pool_skips(LinearResidual())
