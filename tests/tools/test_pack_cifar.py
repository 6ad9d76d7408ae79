"""CIFAR-10 in small files and whole again."""

import torch

from skiplens.data.catalogue import CATALOGUE
from skiplens.data.formats import write_cifar
from skiplens.data.images import ImageSet
from tools import pack_cifar


def pictures(count, seed):
    """Smooth ones with a little noise, as photographs are, and all values of a byte among them."""
    generator = torch.Generator().manual_seed(seed)
    slopes = torch.rand(count, 1, 2, generator=generator) * 6
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


def test_files_may_come_one_after_the_other_and_what_is_missing_is_told(tmp_path, seed, capsys):
    contents = [write_cifar(*pictures(4, seed + number)) for number in range(2)]
    for name, content in zip(("data_batch_2.bin", "test_batch.bin"), contents, strict=True):
        (tmp_path / f"{name}.bz2").write_bytes(pack_cifar.packed(content))
        pack_cifar.unpack(tmp_path, tmp_path)
        (tmp_path / f"{name}.bz2").unlink()
        assert (tmp_path / "cifar-10-batches-bin" / name).read_bytes() == content
    said = capsys.readouterr().out.splitlines()
    left = "data_batch_1.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin"
    assert said[0].endswith(f": {left}, test_batch.bin missing") and said[1].endswith(f": {left} missing")
