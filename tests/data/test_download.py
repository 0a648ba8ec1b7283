"""Fetching a file from a server of our own: whole, in parts, and wrong."""

import hashlib
import http.server
import threading

import pytest

from bitclass.data import DataFileError
from bitclass.data.picture_sets import DOWNLOADS, download
from bitclass.data.picture_sets.download import Download

CONTENT = bytes(range(256)) * 9000  # 2.3 MB, more than one chunk


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.headers.get("Range"))
        start = 0
        if self.server.takes_ranges and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else self.server.status)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : start + self.server.most_bytes])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        running.handle_error = lambda *_: None  # who has learned enough hangs up
        running.asked, running.takes_ranges = [], True
        running.most_bytes, running.status = len(CONTENT), 200
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.url = f"http://127.0.0.1:{running.server_port}/set/file.tar.gz?x=1"
        yield running
        running.shutdown()
        thread.join()


def source(server, kind="sha256", size=None, content=CONTENT):
    return Download(server.url, f"{kind}:{hashlib.new(kind, content).hexdigest()}", size)


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_file_is_fetched_checked_and_not_fetched_again(server, tmp_path, kind):
    told = []
    wanted = source(server, kind, len(CONTENT))
    path = download(wanted, tmp_path / "new", lambda done, total: told.append((done, total)))
    assert path == tmp_path / "new" / "file.tar.gz"
    assert path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert download(wanted, tmp_path / "new") == path
    assert server.asked == [None]


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_a_download_that_broke_off_goes_on(server, tmp_path, takes_ranges):
    server.takes_ranges, server.most_bytes = takes_ranges, 1_500_000
    with pytest.raises(DataFileError, match=r"file\.tar\.gz\.part, and the next call goes on"):
        download(source(server), tmp_path)
    assert not (tmp_path / "file.tar.gz").exists()
    n_before = (tmp_path / "file.tar.gz.part").stat().st_size
    assert n_before == 1_500_000
    server.most_bytes = len(CONTENT)
    assert download(source(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={n_before}-"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.tar.gz"]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_part_that_is_complete_needs_only_its_check(server, tmp_path, size):
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT)
    assert download(source(server, size=size), tmp_path).read_bytes() == CONTENT


def test_another_content_leaves_no_file(server, tmp_path):
    with pytest.raises(DataFileError, match="has the sha256 checksum"):
        download(source(server, content=b"other"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_content_is_not_kept_for_ever(server, tmp_path):
    (tmp_path / "file.tar.gz.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataFileError, match="checksum"):
        download(source(server), tmp_path)
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_another_size_is_found_out_before_the_download(server, tmp_path):
    with pytest.raises(DataFileError, match=f"has {len(CONTENT)} bytes; expected 77"):
        download(source(server, size=77), tmp_path)


def test_a_damaged_file_that_is_there_is_told_and_kept(server, tmp_path):
    (tmp_path / "file.tar.gz").write_bytes(b"mine")
    with pytest.raises(DataFileError, match="checksum"):
        download(source(server), tmp_path)
    assert (tmp_path / "file.tar.gz").read_bytes() == b"mine"
    assert server.asked == []


def test_errors_of_the_server_are_one_line(server, tmp_path):
    wanted = source(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(DataFileError, match="cannot be fetched"):
        download(wanted, tmp_path)
    with pytest.raises(DataFileError, match="imagenet: is not known; there are 'cifar10'"):
        download("imagenet", tmp_path)


def test_the_table_is_complete():
    for name, known in DOWNLOADS.items():
        kind, _, digest = known.checksum.partition(":")
        assert len(digest) == hashlib.new(kind).digest_size * 2, name
        assert known.name.endswith((".tar.gz", ".zip"))
        int(digest, 16)
