"""The embedded sample: the first 2,000 digits of the MNIST training set, in their order."""

import gzip
from importlib.resources import files

from torch import Tensor

from skiplens.data.class_names import DIGITS
from skiplens.data.idx import read_idx
from skiplens.data.images import ImageSet


def sample() -> ImageSet:
    """The first 2,000 MNIST training digits (28×28, ten classes), read from the package itself.

    They are the leading images and not a balanced choice, so what a paper says about "the first 1000 training images"
    can be checked without fetching anything. Licence: see `skiplens/data/sample/NOTICE.md`.

    Examples:
        >>> digits = sample()
        >>> tuple(digits.images.shape), digits.labels[:5].tolist()
        ((2000, 1, 28, 28), [5, 0, 4, 1, 9])
    """
    images, labels = (_read(f"mnist-first-2000-{kind}.gz") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    return ImageSet(images.unsqueeze(1), labels.long(), DIGITS)


def _read(name: str) -> Tensor:
    return read_idx(gzip.decompress(files("skiplens.data").joinpath("sample", name).read_bytes()), name)
