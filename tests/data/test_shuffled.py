import torch

from skiplens.data.loading import LoadOptions, load
from skiplens.data.preprocessing import Standardisation
from skiplens.data.synthetic import CentredBatches, ShuffledBatches

AS_THEY_ARE = Standardisation((0.0,), (1.0,))


def digits(samples: int = 10):
    return load("sample", LoadOptions(batch_size=4, samples=samples))


def test_each_time_has_every_image_once_in_an_order_that_torch_draws():
    shuffled = ShuffledBatches(digits(), AS_THEY_ARE)
    assert len(shuffled) == 3
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(torch.cat([batch.inputs for batch in shuffled]))
    expected = torch.cat([images for images, _ in digits().source.stream(torch.arange(10), 4)]).float() / 255
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[0].flatten(1).sum(1).sort().values, expected.flatten(1).sum(1).sort().values)


def test_labels_go_with_their_images():
    source = digits().source
    by_image = {image.sum().item(): label for image, label in zip(source.images[:10], source.labels[:10], strict=True)}
    for batch in ShuffledBatches(digits(), AS_THEY_ARE):
        sums = (batch.inputs.double() * 255).round().flatten(1).sum(1)
        assert [by_image[int(total)] for total in sums] == batch.targets.tolist()


def test_centres_are_seven_eighths_of_the_side():
    first = next(iter(CentredBatches(digits(), AS_THEY_ARE)))
    assert first.inputs.shape == (4, 1, 24, 24) and first.inputs.dtype == torch.float32
    assert torch.equal(first.inputs, digits().source.images[:4, :, 2:26, 2:26].float() / 255)
