import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.training.source import augmented, crop, flip, resized_crop
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


def test_resized_crops_are_parts_of_the_picture_of_the_usual_sizes(generator):
    """On a picture whose two channels are its coordinates, a part shows where it was cut and how large it was."""
    count, side = 4000, 16
    places = (2 * torch.arange(side) + 1) / side - 1
    picture = torch.stack([places.expand(side, side), places[:, None].expand(side, side)])
    parts = resized_crop(picture.expand(count, 2, side, side), generator)
    assert parts.shape == (count, 2, 14, 14)
    columns, rows = parts[:, 0, 7, :], parts[:, 1, :, 7]
    width, height = columns[:, 9] - columns[:, 4], rows[:, 9] - rows[:, 4]  # five of fourteen pixels, none at a border
    width, height = width * 14 / 10, height * 14 / 10
    area, ratio = width * height, (width / height).log()
    assert area.min() > 0.07 and area.max() < 1.01 and ratio.abs().max() < 0.35  # log(4/3) = 0.29, pixels cut at edges
    whole = area[(width < 0.95) & (height < 0.95)]
    assert abs(whole.median() - 0.45) < 0.1 and abs(ratio.mean()) < STANDARD_ERRORS * 0.166 / count**0.5


def test_resized_crops_are_mirrored_or_not():
    batch = Batch(pictures(5, 16), torch.arange(5))
    first, again = (augmented(batch, "resized_crop_flip", Randomness(1)).inputs for _ in range(2))
    assert first.shape == (5, 2, 14, 14) and torch.equal(first, again)
