"""CIFAR-10 in pieces and whole again."""

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.formats import write_cifar
from skiplens.data.images import ImageSet
from tools import pack_cifar


def pictures(count, seed):
    """Smooth ones with a little noise, as photographs are, and all values of a byte among them."""
    generator = torch.Generator().manual_seed(seed)
    slopes = torch.rand(count, 3, 2, generator=generator) * 6
    place = torch.arange(32.0)
    smooth = slopes[:, :, 0, None, None] * place[:, None] + slopes[:, :, 1, None, None] * place
    images = (smooth + 4 * torch.rand(count, 3, 32, 32, generator=generator)).clamp(0, 255).to(torch.uint8)
    images[0, 0] = torch.arange(256).repeat(4).reshape(32, 32).to(torch.uint8)
    return images, torch.randint(10, (count,), generator=generator)


def test_nothing_is_lost_and_pictures_become_smaller(seed):
    content = write_cifar(*pictures(50, seed))
    small = pack_cifar.packed(content)
    assert pack_cifar.unpacked(small) == content
    assert len(small) < 0.6 * len(content)


def test_pieces_keep_to_the_limit_and_their_order():
    contents = [bytes([number]) * 10 for number in range(5)]
    found = pack_cifar.pieces(contents, limit=40)
    assert [len(piece) for piece in found] == [36, 36, 18]
    assert [entry for piece in found for entry in pack_cifar.entries(piece)] == contents


def test_what_was_packed_is_unpacked_as_the_authors_files(tmp_path, seed, monkeypatch):
    sets = {
        split: ImageSet(*pictures(count, seed + count), ("x",) * 10) for split, count in (("train", 20), ("test", 4))
    }

    monkeypatch.setattr(pack_cifar, "get", lambda name, split: sets[split])
    monkeypatch.setattr(pack_cifar, "IMAGES", 4)
    pack_cifar.pack(tmp_path / "pieces")
    pack_cifar.unpack(tmp_path / "pieces", tmp_path / "data")
    parts = [part.name for split in ("train", "test") for part in CATALOGUE["cifar10"].split(split)]
    written = b"".join((tmp_path / "data/cifar-10-batches-bin" / name).read_bytes() for name in parts)
    assert written == b"".join(write_cifar(found.images, found.labels) for found in sets.values())


def test_a_piece_that_was_left_behind_is_told(tmp_path):
    (tmp_path / "cifar10.0.xz").write_bytes(pack_cifar.pieces([b"one"])[0])
    with pytest.raises(DataError, match="holds 1 of the 6 files of CIFAR-10; carry all pieces"):
        pack_cifar.unpack(tmp_path, tmp_path)
