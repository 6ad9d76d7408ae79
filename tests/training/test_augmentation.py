import pytest
import torch

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.data import Batch
from skiplens.training.augmentation import augmented, crop, flip
from tests.tolerances import STANDARD_ERRORS


def pictures(count: int, side: int = 8) -> torch.Tensor:
    """Pictures whose pixels are all different and none zero."""
    return 1 + torch.arange(count * 2 * side * side, dtype=torch.float64).reshape(count, 2, side, side)


def test_flips_are_whole_and_even(generator):
    images = pictures(2000, 2)
    changed = flip(images, generator)
    kept = (changed == images).flatten(1).all(1)
    mirrored = (changed == images.flip(-1)).flatten(1).all(1)
    assert bool((kept ^ mirrored).all())
    assert abs(kept.double().mean() - 0.5) < STANDARD_ERRORS * 0.5 / 2000**0.5


def test_crops_are_the_picture_moved_with_zeros_from_outside(generator):
    images = pictures(300)
    moved = crop(images, generator)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    shifts = {(r, c): padded[:, :, r : r + 8, c : c + 8] for r in range(3) for c in range(3)}
    matches = torch.stack([(moved == shifted).flatten(1).all(1) for shifted in shifts.values()])
    assert bool((matches.sum(0) == 1).all())
    assert bool((matches.sum(1) > 0).all())  # a place missed by 300 draws: (8/9)^300 = 5e-16


def test_the_seed_decides_and_targets_stay():
    batch = Batch(pictures(9), torch.arange(9))
    first = augmented(batch, "crop_flip", Randomness(1))
    again = augmented(batch, "crop_flip", Randomness(1))
    other = augmented(batch, "crop_flip", Randomness(2))
    assert torch.equal(first.inputs, again.inputs) and not torch.equal(first.inputs, other.inputs)
    assert torch.equal(first.targets, batch.targets) and first.inputs.shape == batch.inputs.shape
    assert augmented(batch, "none", Randomness(0)) is batch


def test_only_pictures_can_be_changed():
    with pytest.raises(InvalidInputError, match=r"wants images of shape .* got \(3, 4\)"):
        augmented(Batch(torch.zeros(3, 4), torch.zeros(3)), "flip", Randomness(0))
