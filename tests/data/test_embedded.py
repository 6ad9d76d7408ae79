import hashlib
from importlib.resources import files

from skiplens.data.images import sample


def test_the_sample_is_the_beginning_of_mnist():
    digits = sample()
    assert digits.images.shape == (2000, 1, 28, 28) and len(digits.classes) == 10
    # As every listing of the MNIST training labels begins.
    assert digits.labels[:20].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9]


def test_the_sample_is_as_it_was_cut_from_the_verified_file():
    digits = sample()
    # SHA-256 of bytes 16 to 1,568,016 of the training images whose own SHA-256 the catalogue holds.
    digest = hashlib.sha256(digits.images.numpy().tobytes()).hexdigest()
    assert digest == "4d1e2862007bab5908d814e74806c6c8f7c4a4f32b5875d195406d4d1dbe4946"


def test_the_sample_has_its_licence_beside_it_and_is_small():
    folder = files("skiplens.data").joinpath("sample")
    assert "Attribution-ShareAlike 3.0" in folder.joinpath("NOTICE.md").read_text(encoding="utf-8")
    assert sum(len(entry.read_bytes()) for entry in folder.iterdir()) < 2**20
