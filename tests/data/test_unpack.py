import pytest

from skiplens.base.errors import DataError
from skiplens.data.download import read_gzip, read_tar, require_checksum
from tests.data.toy import gzipped, part_of, tarred

CONTENT = bytes(range(256)) * 64
PART = part_of("pixels", CONTENT)


def test_the_right_content_passes():
    assert require_checksum(PART, CONTENT, "file") is CONTENT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:-1], "file is truncated: pixels has 16384 bytes, this has 16383"),
        (CONTENT + b"x", "file is too long: pixels has 16384 bytes, this has 16385"),
        (CONTENT[:-1] + b"x", f"file has the wrong checksum: its SHA-256 is [0-9a-f]{{64}}, wanted {PART.sha256}"),
    ],
)
def test_any_other_content_is_refused(content, message):
    with pytest.raises(DataError, match=message):
        require_checksum(PART, content, "file")


@pytest.mark.parametrize("mode", ["gz", ""])
def test_parts_are_found_in_an_archive_by_their_last_name(tmp_path, mode):
    path = tmp_path / "archive"
    path.write_bytes(tarred({"other": b"x", "pixels": CONTENT, "second.gz": gzipped(b"two")}, "a/b", mode))
    second = part_of("second", b"two")
    assert list(read_tar(path, [PART, second])) == [(PART, CONTENT), (second, b"two")]


def test_nothing_is_read_beyond_the_announced_size(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzipped(bytes(10**6)))
    assert len(read_gzip(path, PART)) == PART.size + 1
    archive = tmp_path / "bomb.tar.gz"
    archive.write_bytes(tarred({"pixels": bytes(10**6)}))
    assert [len(content) for _, content in read_tar(archive, [PART])] == [PART.size + 1]


def test_links_in_an_archive_are_not_followed(tmp_path):
    import tarfile

    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("pixels")
        member.type, member.linkname = tarfile.SYMTYPE, "../secret"
        archive.addfile(member)
    assert list(read_tar(path, [PART])) == []


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_truncated_archives_are_named(tmp_path, keep):
    import random

    noise = random.Random(0).randbytes(20000)  # does not compress, so half of the file is half of the content
    part = part_of("pixels", noise)
    for name, whole in (("x.gz", gzipped(noise)), ("x.tar.gz", tarred({"pixels": noise}))):
        (tmp_path / name).write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError, match=r"x\.gz is truncated or damaged"):
        read_gzip(tmp_path / "x.gz", part)
    with pytest.raises(DataError, match=r"x\.tar\.gz is truncated or damaged"):
        list(read_tar(tmp_path / "x.tar.gz", [part]))
