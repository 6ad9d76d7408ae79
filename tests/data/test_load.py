import pytest
import torch
from PIL import Image

from skiplens.base.errors import DataError, InvalidInputError
from skiplens.data.images import sample
from skiplens.data.loading import LoadOptions, load
from skiplens.graph.batch import as_batches, count_samples
from tests.data.toy import ToyDigits, random_bytes, write_all
from tests.tolerances import assert_close


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(6):
            pixels = random_bytes(8, 8, 3, seed=i + 10 * (name == "b"))
            Image.fromarray(pixels.numpy()).save(tmp_path / "images" / name / f"{i}.png")
    return tmp_path / "images"


def test_the_sample_comes_in_batches_of_standardised_images():
    data = load("sample")
    batches = list(data)
    assert len(batches) == len(data) == 32 and data.samples == 2000 and data.shape == (1, 28, 28)
    inputs = torch.cat([batch.inputs for batch in batches])
    assert inputs.dtype == torch.float64 and abs(inputs.mean().item()) < 1e-12
    # A one-pass variance of 1.6 million terms may lose a rounding a term.
    rounding = inputs.numel() * torch.finfo(inputs.dtype).eps
    assert_close(inputs.std(unbiased=False), torch.tensor(1.0), relative=rounding)
    assert torch.equal(torch.cat([batch.targets for batch in batches]), sample().labels)


def test_it_is_data_as_everything_else_takes_it():
    data = load("sample", LoadOptions(samples=100))
    assert count_samples(as_batches(data)) == 100 and count_samples(data) == 100
    assert data.first(70).samples == 70


def test_fewer_samples_are_the_beginning_of_more(folder):
    for spec in ("sample", folder):
        few, many = load(spec, LoadOptions(samples=3)), load(spec)
        assert torch.equal(few.first(3).inputs, many.first(3).inputs)


def test_pixels_may_stay_as_they_are():
    data = load("sample", LoadOptions(standardise=False, samples=5))
    assert torch.equal(data.first(5).inputs, sample().first(5).pixels())


def test_a_data_set_and_its_split_are_named_by_words(known, tmp_path):
    known(ToyDigits.data_set())
    root = write_all(tmp_path / "mine", ToyDigits.contents)
    assert torch.equal(load("toy-digits", root=root).first(7).targets, ToyDigits.labels.long())
    assert load("toy-digits:test", root=root).samples == 3


def test_a_folder_is_read_in_a_random_order_fixed_by_the_seed(folder):
    def targets(seed):
        return load(folder, LoadOptions(seed=seed, batch_size=5)).first(12).targets.tolist()

    assert targets(0) == targets(0) and sorted(targets(0)) == [0] * 6 + [1] * 6
    assert len({tuple(targets(seed)) for seed in range(5)}) > 1


def test_a_folder_may_be_brought_to_a_size(folder):
    data = load(str(folder), LoadOptions(image_size=4))
    assert data.shape == (3, 4, 4) and data.classes == ("a", "b") and next(iter(data)).inputs.shape == (12, 3, 4, 4)


def test_a_folder_of_a_few_images_is_standardised_by_all_of_them(folder):
    inputs = load(folder).first(12).inputs
    assert_close(inputs.mean((0, 2, 3)) + 1, torch.ones(3))
    assert_close(inputs.std((0, 2, 3), unbiased=False), torch.ones(3))


def test_options_come_from_words():
    assert LoadOptions.from_json({"batch_size": "8", "samples": "none"}) == LoadOptions(batch_size=8)


def test_words_that_name_nothing_are_answered_with_near_ones(tmp_path):
    with pytest.raises(
        DataError, match=r"'cifar01' is neither a folder of images nor a known data set. Did you mean cifar1"
    ):
        load("cifar01")


def test_an_image_size_for_a_fixed_set_is_refused():
    with pytest.raises(InvalidInputError, match=r"sample has images of 28×28 pixels, so image_size=32 cannot be had"):
        load("sample", LoadOptions(image_size=32))


@pytest.mark.parametrize("name", ["batch_size", "samples", "image_size"])
def test_counts_must_be_positive(name):
    with pytest.raises(InvalidInputError, match=f"{name} must be at least 1; got 0"):
        LoadOptions(**{name: 0})
