import errno
from pathlib import Path

import pytest

from skiplens.base.progress import silent
from skiplens.data import download as data_download
from skiplens.data.download import RouteClosed, download
from tests.data.host import serving
from tests.data.toy import archive_of

CONTENT = bytes(range(251)) * 2000  # half a million bytes that show every shift
NAME = "pixels.bin"


@pytest.fixture
def host():
    with serving({NAME: CONTENT}) as host:
        yield host


def get(host, folder, progress=silent):
    return download(archive_of(host.url + NAME, CONTENT), folder, progress)


def unfinished(folder: Path) -> Path:
    return folder / f"{NAME}.unfinished"


def test_a_file_arrives_whole_and_leaves_nothing_else(host, tmp_path):
    path = get(host, tmp_path)
    assert path.read_bytes() == CONTENT and [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_progress_counts_bytes_to_the_end(host, tmp_path):
    seen = []
    get(host, tmp_path, lambda label, done, total: seen.append((label, done, total)))
    assert seen[-1] == (f"downloading {NAME}", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen) and len(seen) > 3


def test_a_broken_transfer_is_continued_where_it_broke(host, tmp_path):
    host.break_off_after = [100_000, 200_000]
    assert get(host, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in host.asked] == [None, "bytes=100000-", "bytes=300000-"]


def test_what_an_earlier_run_left_is_continued(host, tmp_path):
    unfinished(tmp_path).write_bytes(CONTENT[:123_456])
    seen = []
    assert get(host, tmp_path, lambda label, done, total: seen.append((done, total))).read_bytes() == CONTENT
    assert host.asked == [(f"/{NAME}", "bytes=123456-")]
    assert seen[0][0] > 123_456 and seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_host_without_ranges_is_read_from_the_start(host, tmp_path):
    host.honours_ranges = False
    unfinished(tmp_path).write_bytes(CONTENT[:1000])
    assert get(host, tmp_path).read_bytes() == CONTENT and len(host.asked) == 1


def test_wrong_leftovers_are_thrown_away_and_the_file_fetched_anew(host, tmp_path):
    unfinished(tmp_path).write_bytes(b"wrong" * 100)
    assert get(host, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in host.asked] == ["bytes=500-", None]


def test_leftovers_longer_than_the_file_are_thrown_away(host, tmp_path):
    unfinished(tmp_path).write_bytes(CONTENT + b"more")
    assert get(host, tmp_path).read_bytes() == CONTENT


def test_a_finished_file_is_not_fetched_again(host, tmp_path):
    get(host, tmp_path)
    get(host, tmp_path)
    assert len(host.asked) == 1


def test_a_host_that_calls_gzip_an_encoding_does_not_get_the_file_unpacked(tmp_path):
    import gzip

    packed = gzip.compress(CONTENT)
    with serving({NAME: packed}) as host:
        host.headers["Content-Encoding"] = "gzip"
        assert download(archive_of(host.url + NAME, packed), tmp_path, silent).read_bytes() == packed


def test_a_transfer_that_keeps_breaking_says_so_and_keeps_what_came(host, tmp_path):
    host.break_off_after = [1000, 1000, 1000]
    with pytest.raises(RouteClosed, match=r"pixels.bin could not be downloaded: no network, or it broke off"):
        get(host, tmp_path)
    assert unfinished(tmp_path).read_bytes() == CONTENT[:3000]
    assert get(host, tmp_path).read_bytes() == CONTENT


def test_a_wrong_file_is_refused_by_its_checksum(host, tmp_path):
    host.files[NAME] = CONTENT[:-1] + b"x"
    with pytest.raises(RouteClosed, match=r"pixels.bin has the wrong checksum"):
        get(host, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_transfer_stops_at_the_size_of_the_published_file(host, tmp_path, is_announced):
    host.files[NAME], host.announces = CONTENT * 8, is_announced
    seen = [0]
    with pytest.raises(RouteClosed, match=rf"pixels.bin is longer than the {len(CONTENT)} bytes of the published file"):
        get(host, tmp_path, lambda label, done, total: seen.append(done))
    assert max(seen) <= (0 if is_announced else len(CONTENT)) and len(host.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_only_encrypted_addresses_are_followed(host, tmp_path, monkeypatch):
    monkeypatch.setattr(data_download, "_FOLLOWED", ("https://",))
    with pytest.raises(RouteClosed, match=r"could not be downloaded: it leads to an address without encryption"):
        get(host, tmp_path)
    assert host.asked == [] and list(tmp_path.iterdir()) == []


def test_a_redirection_to_an_address_without_encryption_is_not_followed(host, tmp_path, monkeypatch):
    """The first address may be asked here; the one that it leads to may not."""
    host.redirects[NAME] = f"{host.url.replace('127.0.0.1', 'localhost')}{NAME}"
    with pytest.raises(RouteClosed, match=r"it leads to an address without encryption .*localhost"):
        get(host, tmp_path)
    assert len(host.asked) == 1


def test_a_missing_file_is_asked_for_once(host, tmp_path):
    host.files.clear()
    with pytest.raises(RouteClosed, match="could not be downloaded: 404 Client Error"):
        get(host, tmp_path)
    assert len(host.asked) == 1


def test_no_network_is_said(tmp_path):
    with serving({}) as host:
        closed = archive_of(host.url + NAME, CONTENT)
    with pytest.raises(RouteClosed, match=r"could not be downloaded: no network, or it broke off \(.*refused"):
        download(closed, tmp_path, silent)


def test_a_full_disk_leaves_no_half_file(host, tmp_path, monkeypatch):
    def full(self, *arguments):
        file = original(self, *arguments)

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, chunk):
                file.write(chunk[:10])
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full() if self.name.endswith(".unfinished") else file

    original = data_download.Path.open
    monkeypatch.setattr(data_download.Path, "open", full)
    with pytest.raises(OSError, match="No space left"):
        get(host, tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
