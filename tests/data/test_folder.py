import os
import threading

import pytest
import torch
from PIL import Image

from skiplens.base.errors import DataError
from skiplens.data import formats, loading
from skiplens.data.formats import Framing
from skiplens.data.loading import open_folder
from tests.data.toy import random_bytes

CLASSES = {"cat": 3, "bird": 2, "dog": 4}


def pixels(name, i):
    return random_bytes(4, 5, 3, seed=hash((len(name), i)) % 1000)


@pytest.fixture
def root(tmp_path):
    """Nine PNGs of 5×4 pixels in three class folders, and things that are no images beside them."""
    for name, count in CLASSES.items():
        (tmp_path / name).mkdir()
        for i in range(count):
            Image.fromarray(pixels(name, i).numpy()).save(tmp_path / name / f"{i}.png")
        (tmp_path / name / "notes.txt").write_text("no image")
        (tmp_path / name / ".hidden.png").write_text("no image")
    (tmp_path / "readme.md").write_text("no class")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_classes_and_files_are_sorted_and_labelled_by_their_folder(root):
    folder = open_folder(root)
    assert folder.classes == ("bird", "cat", "dog") and len(folder) == 9 and folder.shape == (3, 4, 5)
    assert [folder.index.label(i) for i in range(9)] == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    paths = [folder.index.path(i) for i in range(9)]
    assert paths == [root / name / f"{i}.png" for name in ("bird", "cat", "dog") for i in range(CLASSES[name])]


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_images_stream_in_the_order_asked_for(root, batch_size, generator):
    folder = open_folder(root)
    order = torch.randperm(9, generator=generator)
    batches = list(folder.stream(order, batch_size))
    images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    assert [len(labels) for _, labels in batches][:-1] == [batch_size] * (len(batches) - 1)
    for image, label, index in zip(images, labels.tolist(), order.tolist(), strict=True):
        path = folder.index.path(index)
        assert folder.classes[label] == path.parent.name
        assert torch.equal(image.permute(1, 2, 0), pixels(path.parent.name, int(path.stem)))


def test_opening_lists_each_folder_once_and_decodes_one_image(root, monkeypatch):
    listed, decoded = [], []
    scandir, decode = os.scandir, formats.decode
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    monkeypatch.setattr(loading, "decode", lambda *a, **k: decoded.append(a[0]) or decode(*a, **k))
    folder = open_folder(root)
    assert sorted(map(str, listed)) == sorted(map(str, [root, *(root / name for name in CLASSES)]))
    assert len(decoded) == 1
    next(folder.stream(torch.arange(9), 2))
    assert len(listed) == 4


def test_reading_ahead_is_bounded(tmp_path, monkeypatch):
    (tmp_path / "only").mkdir()
    for i in range(200):
        Image.new("L", (2, 2), i).save(tmp_path / "only" / f"{i:03}.png")
    folder = open_folder(tmp_path)
    decoded = []
    decode = formats.decode
    monkeypatch.setattr(loading, "decode", lambda *a, **k: decoded.append(a[0]) or decode(*a, **k))
    stream = folder.stream(torch.arange(200), 5)
    next(stream)
    assert len(decoded) <= 5 + loading._MOST_WORKERS * loading._WAITING_PER_WORKER
    stream.close()


def test_images_are_decoded_in_worker_threads_that_end_with_the_stream(root, monkeypatch):
    names = set()
    decode = formats.decode

    def watched(*arguments, **words):
        names.add(threading.current_thread().name)
        return decode(*arguments, **words)

    folder = open_folder(root)
    before = set(threading.enumerate())
    monkeypatch.setattr(loading, "decode", watched)
    stream = folder.stream(torch.arange(9), 2)
    next(stream)
    stream.close()
    assert names and all(name.startswith("decode") for name in names)
    assert set(threading.enumerate()) <= before


def test_the_index_takes_a_few_bytes_per_file(tmp_path, monkeypatch):
    names = [f"n01440764_{i}.JPEG" for i in range(50_000)]
    (tmp_path / "n01440764").mkdir()
    monkeypatch.setattr(loading, "_image_names", lambda folder: names)
    index = loading.list_files(tmp_path)
    size = len(index.names) + index.name_ends.nbytes + index.class_ends.nbytes
    assert len(index) == 50_000 and size <= 50_000 * (len(names[-1]) + 8) + 8
    assert index.path(49_999).name == names[-1] and index.path(0).name == names[0]


def test_names_that_are_not_utf8_survive(tmp_path):
    (tmp_path / "a").mkdir()
    name = os.fsdecode(b"caf\xe9.png")
    try:
        Image.new("L", (2, 2)).save(tmp_path / "a" / name)
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system wants UTF-8 names")
    assert open_folder(tmp_path).index.path(0).name == name


def test_mixed_sizes_are_named_and_an_image_size_helps(root):
    Image.new("RGB", (7, 4)).save(root / "dog" / "wide.png")
    stream = open_folder(root).stream(torch.arange(10), 10)
    with pytest.raises(DataError, match=r"different sizes: .*wide.png is 7×4, but .*0.png is 5×4. Give an image size"):
        next(stream)
    (images, _), *_ = open_folder(root, Framing(4, 4)).stream(torch.arange(10), 10)
    assert images.shape == (10, 3, 4, 4)


def test_one_broken_image_is_named_when_it_is_reached(root):
    (root / "dog" / "2.png").write_bytes(b"broken")
    folder = open_folder(root)
    with pytest.raises(DataError, match=r"2.png could not be read as an image"):
        list(folder.stream(torch.arange(9), 3))


def test_a_grey_image_among_colours_is_brought_to_colour(root):
    Image.new("L", (5, 4), 9).save(root / "dog" / "grey.png")
    (images, _), *_ = open_folder(root).stream(torch.tensor([9]), 1)
    assert images[0, :, 0, 0].tolist() == [9, 9, 9]


def test_an_empty_folder_is_named_with_the_layout_wanted(tmp_path):
    with pytest.raises(
        DataError, match=r"is empty of class folders. Put the images of each class into a folder of its o"
    ):
        open_folder(tmp_path)


def test_an_empty_class_is_named(root):
    (root / "fish").mkdir()
    with pytest.raises(DataError, match=r"The class folder .*fish holds no images"):
        open_folder(root)


def test_a_folder_that_is_none_is_named(root):
    with pytest.raises(DataError, match=r"readme.md is not a folder"):
        open_folder(root / "readme.md")
