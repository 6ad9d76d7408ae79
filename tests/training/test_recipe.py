import pytest

from skiplens.base.errors import SettingsError
from skiplens.training.recipe import Recipe


def test_a_recipe_survives_json_and_words():
    recipe = Recipe(optimiser="adam", milestones=(3, 5), steps=7)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json({"optimiser": "adam", "milestones": "3,5", "steps": "7"}) == recipe


def test_the_key_of_a_recipe_stays():
    """Frozen: a stored run would not be found again if this changed."""
    assert Recipe().key() == "3bc5b3e9b28c44f7"
    assert Recipe(optimiser="adam", milestones=(3, 5), steps=7).key() == "43a2f2fd7cbc735a"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"learning_rate": 0.0}, r"learning_rate is 0\.0; wanted a number above 0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"momentum": 1.0}, r"momentum is 1\.0; wanted at least 0 and below 1"),
        ({"weight_decay": -1.0}, r"weight_decay is -1\.0; wanted at least 0"),
        ({"batch_size": 0}, "batch_size is 0; wanted at least 1, or none for all"),
        ({"epochs": 0}, "epochs is 0; wanted at least 1"),
        ({"steps": 0}, "steps is 0; wanted at least 1, or none to count epochs"),
        ({"warmup_epochs": -1}, "warmup_epochs is -1; wanted at least 0"),
        ({"milestone_factor": 0.0}, r"milestone_factor is 0\.0; wanted a number above 0"),
        ({"milestones": (5, 3)}, r"milestones is \(5, 3\); wanted epochs from 1 on in ascending order"),
        ({"milestones": (0,)}, r"milestones is \(0,\); wanted epochs from 1 on"),
        ({"optimiser": "adam", "momentum": 0.9}, r"momentum is 0\.9; wanted 0 for adam"),
        ({"nesterov": True}, "nesterov is True; wanted false where momentum is 0"),
        ({"optimiser": "lion"}, "must be one of sgd, adam, adamw; got 'lion'"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        Recipe(**wrong)
