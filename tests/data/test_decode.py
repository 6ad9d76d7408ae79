import pytest
import torch
from PIL import Image

from skiplens.base.errors import DataError, InvalidInputError
from skiplens.data.formats import Framing, decode
from tests.data.toy import random_bytes


@pytest.fixture
def colours(tmp_path):
    """A PNG of 6×4 random pixels (width, height) and its bytes (channels, height, width)."""
    pixels = random_bytes(4, 6, 3)
    path = tmp_path / "colours.png"
    Image.fromarray(pixels.numpy()).save(path)
    return path, pixels.permute(2, 0, 1)


def test_bytes_come_as_they_were_stored(colours):
    path, pixels = colours
    assert torch.equal(decode(path, Framing()), pixels)


def test_grey_stays_grey_unless_colour_is_asked_for(tmp_path):
    grey = random_bytes(5, 7)
    Image.fromarray(grey.numpy()).save(tmp_path / "grey.png")
    assert torch.equal(decode(tmp_path / "grey.png", Framing()), grey[None])
    assert torch.equal(decode(tmp_path / "grey.png", Framing(), channels=3), grey.expand(3, 5, 7))


def test_a_crop_is_centred(colours):
    path, pixels = colours
    assert torch.equal(decode(path, Framing(crop=2)), pixels[:, 1:3, 2:4])


def test_resize_scales_the_shorter_side_and_keeps_the_proportion(colours):
    path, _ = colours
    assert decode(path, Framing(resize=8)).shape == (3, 8, 12)
    assert decode(path, Framing(resize=8, crop=8)).shape == (3, 8, 8)


def test_resizing_a_constant_image_leaves_it_constant(tmp_path):
    Image.new("RGB", (9, 5), (10, 20, 30)).save(tmp_path / "flat.png")
    resized = decode(tmp_path / "flat.png", Framing(3, 3))
    assert torch.equal(resized, torch.tensor([10, 20, 30], dtype=torch.uint8)[:, None, None].expand(3, 3, 3))


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "CMYK"])
def test_other_8_bit_modes_are_brought_to_grey_or_colour(tmp_path, mode):
    image = Image.new("RGB", (3, 3), (200, 200, 200)).convert(mode)
    ending = "jpg" if mode == "CMYK" else "png"
    image.save(tmp_path / f"image.{ending}")
    assert decode(tmp_path / f"image.{ending}", Framing()).shape == (1 if mode in ("LA", "1") else 3, 3, 3)


def test_a_palette_with_transparency_needs_no_warning(tmp_path):
    image = Image.new("P", (3, 3))
    image.putpalette([10, 20, 30] * 256)
    image.save(tmp_path / "p.png", transparency=bytes([0, 128, 255]))
    assert decode(tmp_path / "p.png", Framing())[:, 0, 0].tolist() == [10, 20, 30]


def test_a_broken_image_is_named(colours, tmp_path):
    whole = colours[0].read_bytes()
    for name, content in (("text.png", b"not an image"), ("cut.png", whole[: len(whole) // 2]), ("empty.png", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} could not be read as an image \(.*Replace it or move it away"):
            decode(tmp_path / name, Framing())


def test_deep_images_are_named(tmp_path):
    Image.new("I;16", (3, 3)).save(tmp_path / "deep.png")
    with pytest.raises(InvalidInputError, match=r"deep.png has more than 8 bits per channel \(mode I;16\)"):
        decode(tmp_path / "deep.png", Framing())


def test_a_crop_larger_than_the_image_is_named(colours):
    with pytest.raises(InvalidInputError, match=r"colours.png is 6×4, smaller than the crop of 5×5"):
        decode(colours[0], Framing(crop=5))


def test_sizes_must_be_positive():
    with pytest.raises(InvalidInputError, match="crop must be at least 1 pixel; got 0"):
        Framing(crop=0)
