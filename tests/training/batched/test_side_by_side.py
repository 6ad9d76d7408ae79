"""Image networks side by side against the same networks trained one after the other by `train`."""

from dataclasses import replace

import pytest
import torch

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.training.batched.side_by_side import train_side_by_side
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe

RECIPE = Recipe(
    learning_rate=0.05,
    momentum=0.9,
    nesterov=True,
    weight_decay=1e-2,
    batch_size=16,
    epochs=3,
    milestones=(1, 2),
    augmentation="crop_flip",
)
OWN = [{"seed": 3}, {"seed": 4, "learning_rate": 0.2}, {"seed": 3, "milestones": (2,)}]
RECIPES = [replace(RECIPE, **own) for own in OWN]


def images(seed, dtype=torch.float64):
    """Forty images: two batches and a short one."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(40, 3, 8, 8, generator=generator, dtype=dtype)
    return Batch(drawn, torch.randint(10, (40,), generator=generator))


def networks(seed, dtype=torch.float64):
    """Of other shapes, on purpose."""
    shapes = ((8, 2), (8, 1), (14, 2))
    built = (
        zoo.build("preact_resnet", Randomness(seed), depth=depth, shortcut_depth=length, width=4)
        for depth, length in shapes
    )
    return [network.to(dtype) for network in built]


def largest_weight(network):
    return max(float(parameter.detach().abs().max()) for parameter in network.parameters())


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_each_network_becomes_what_it_becomes_alone(seed, channels_last, plain):
    recipes = [replace(recipe, channels_last=channels_last) for recipe in RECIPES]
    if plain:
        without = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "augmentation": "none"}
        recipes = [replace(recipe, **without) for recipe in recipes]
    together, alone = networks(seed), networks(seed)
    found = train_side_by_side(together, images(seed), recipes, look=largest_weight)
    for index, (network, twin, recipe) in enumerate(zip(together, alone, recipes, strict=True)):
        start = largest_weight(twin)
        history = train(twin, images(seed), recipe)
        torch.testing.assert_close(found.epoch_losses[index], history.epoch_losses.double(), rtol=1e-6, atol=0)
        for name, weights in twin.state_dict().items():
            torch.testing.assert_close(network.state_dict()[name], weights, rtol=1e-6, atol=1e-9)
        assert found.looks[index, [0, -1]].tolist() == pytest.approx([start, largest_weight(network)])


def test_half_precision_stays_near_full(seed):
    """Weights stay float32; products have eight bits, so losses of a few steps differ in the second digit."""
    recipes = [replace(RECIPE, precision="bfloat16", channels_last=True, epochs=2, milestones=(1,))]
    network, twin = (networks(seed, torch.float32)[0] for _ in range(2))
    found = train_side_by_side([network], images(seed, torch.float32), recipes)
    alone = train(twin, images(seed, torch.float32), recipes[0])
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    torch.testing.assert_close(found.epoch_losses[0], alone.epoch_losses.double(), rtol=2**-5, atol=0)


def die_after_an_epoch(together, data, kept):
    """Train them one epoch further than the file, and die in the next; the first looks are at the start."""
    looks = []

    def dying(network):
        looks.append(network)
        if len(looks) > 2 * len(RECIPES):
            raise KeyboardInterrupt
        return largest_weight(network)

    with pytest.raises(KeyboardInterrupt):
        train_side_by_side(together, data, RECIPES, look=dying, checkpoint=kept)


def test_killed_after_any_epoch_it_goes_on_to_the_same_bits(seed, tmp_path):
    whole = networks(seed)
    expected = train_side_by_side(whole, images(seed), RECIPES, look=largest_weight)
    kept = Checkpoint(tmp_path / "kept.pt", every_steps=1)
    for _ in range(RECIPE.epochs - 1):
        die_after_an_epoch(networks(seed), images(seed), kept)
    last = networks(seed)
    found = train_side_by_side(last, images(seed), RECIPES, look=largest_weight, checkpoint=kept)
    assert torch.equal(found.epoch_losses, expected.epoch_losses) and torch.equal(found.looks, expected.looks)
    for network, twin in zip(last, whole, strict=True):
        assert all(
            torch.equal(one, other)
            for one, other in zip(network.state_dict().values(), twin.state_dict().values(), strict=True)
        )


def test_what_is_killed_goes_on_from_the_last_epoch_that_was_kept(seed, tmp_path):
    """Kept after every epoch; the killed one dies in its last epoch."""
    whole, file = networks(seed), Checkpoint(tmp_path / "kept.pt", every_steps=1)
    expected = train_side_by_side(whole, images(seed), RECIPES)
    looks = []

    def dying(network):
        looks.append(network)
        if len(looks) > len(RECIPES) * RECIPE.epochs:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        train_side_by_side(networks(seed), images(seed), RECIPES, look=dying, checkpoint=file)
    last = networks(seed)
    found = train_side_by_side(last, images(seed), RECIPES, checkpoint=file)
    assert torch.equal(found.epoch_losses, expected.epoch_losses)
    assert torch.equal(next(last[1].parameters()), next(whole[1].parameters()))


def test_the_file_of_other_networks_is_refused(seed, tmp_path):
    file = tmp_path / "kept.pt"
    die_after_an_epoch(networks(seed), images(seed), Checkpoint(file, every_steps=1))
    with pytest.raises(InvalidInputError, match="holds another run, which differs in first weights"):
        train_side_by_side(networks(seed + 1), images(seed), RECIPES, checkpoint=file)


def test_a_network_that_diverges_leaves_the_others_alone(seed):
    recipes = [RECIPES[0], replace(RECIPES[0], learning_rate=1e30)]
    together, alone = networks(seed)[:2], networks(seed)[0]
    found = train_side_by_side(together, images(seed), recipes)
    history = train(alone, images(seed), recipes[0])
    torch.testing.assert_close(found.epoch_losses[0], history.epoch_losses.double(), rtol=1e-6, atol=0)
    assert found.epoch_losses[1, -1].isnan()


@pytest.mark.parametrize(
    ("recipes", "message"),
    [
        ([RECIPE], "There are 3 networks and 1 recipes; give one recipe each"),
        ([RECIPE, RECIPE, replace(RECIPE, epochs=9)], "differ in epochs; make it the same for all"),
        ([replace(RECIPE, augmentation="flip")] * 3, "cannot be trained with augmentation='flip'. Take SGD"),
        ([replace(RECIPE, steps=4)] * 3, "cannot be trained with steps=4"),
        ([replace(RECIPE, precision="float16")] * 3, "cannot be trained with precision='float16'"),
    ],
)
def test_what_cannot_be_trained_together_is_told(seed, recipes, message):
    with pytest.raises(InvalidInputError, match=message):
        train_side_by_side(networks(seed), images(seed), recipes)


def test_what_are_no_images_is_told(seed):
    with pytest.raises(InvalidInputError, match="want images, one tensor"):
        train_side_by_side(networks(seed), Batch(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)), RECIPES)


@pytest.mark.gpu
def test_a_recorded_step_is_the_step(seed):
    """On a GPU: the graph with a branch for each network against the same steps one by one."""
    recipes = [replace(recipe, cuda_graph=True, channels_last=True) for recipe in RECIPES]
    data, found = images(seed, torch.float32).to("cuda"), []
    for own in (recipes, [replace(recipe, cuda_graph=False) for recipe in recipes]):
        placed = [network.cuda() for network in networks(seed, torch.float32)]
        found.append(train_side_by_side(placed, data, own).epoch_losses)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=0)
