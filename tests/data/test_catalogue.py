import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.data.catalogue import CATALOGUE, look_up
from tests.data.toy import ToyColours, ToyDigits


def test_sizes_of_the_parts_are_those_of_the_published_counts():
    counts = {name: (entry.samples("train"), entry.samples("test")) for name, entry in CATALOGUE.items()}
    sixty, fifty = (60000, 10000), (50000, 10000)
    assert counts == {"mnist": sixty, "fashion-mnist": sixty, "cifar10": fifty, "cifar100": fifty}


def test_class_names_are_complete_and_distinct():
    for entry in CATALOGUE.values():
        assert len(set(entry.classes)) == (100 if entry.name == "cifar100" else 10)
    # The authors list the fine labels in alphabetical order.
    assert list(CATALOGUE["cifar100"].classes) == sorted(CATALOGUE["cifar100"].classes)


def test_every_checksum_has_the_length_of_its_kind():
    for entry in CATALOGUE.values():
        assert all(len(bytes.fromhex(part.sha256)) == 32 for part in entry.parts)
        for archive in entry.archives:
            kind, digest = archive.checksum.split(":")
            assert len(bytes.fromhex(digest)) == {"md5": 16, "sha256": 32}[kind]


def test_every_address_is_encrypted():
    assert all(archive.url.startswith("https://") for entry in CATALOGUE.values() for archive in entry.archives)


def test_idx_parts_are_assembled():
    images = ToyDigits.data_set().assemble(list(ToyDigits.contents.values())[:2], ["images", "labels"])
    assert torch.equal(images.images[:, 0], ToyDigits.images) and torch.equal(images.labels, ToyDigits.labels.long())


def test_cifar_parts_are_assembled_in_order():
    images = ToyColours.data_set().assemble(list(ToyColours.contents.values())[:2], ["one", "two"])
    assert torch.equal(images.images, ToyColours.images[:6]) and torch.equal(
        images.labels, ToyColours.labels[:6].long()
    )


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(DataError, match=r"There is no data set 'cifar'. Did you mean cifar10"):
        look_up("cifar")
    with pytest.raises(DataError, match="mnist has the splits train and test; got 'validation'"):
        look_up("mnist").split("validation")
