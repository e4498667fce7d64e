"""`monogram data`: the list, and downloads from a server on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from monogram.cli import data
from monogram.data import public

CONTENT = bytes(range(256)) * 4_000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/gone.zip":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) + (1_000 if self.path == "/short.zip" else 0)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def offer(monkeypatch, address):
    """Put a small set in the list, to be fetched from here."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MONOGRAM_DATA", raising=False)

    def put(path="/tiny.zip", md5=None, at=address):
        right = hashlib.md5(CONTENT).hexdigest()
        tiny = dataclasses.replace(public.get("ml-100k"), name="tiny", url=at + path, md5=md5 or right)
        monkeypatch.setitem(public.DATA_SETS, "tiny", tiny)

    return put


def test_the_list(program, tmp_path, monkeypatch):
    monkeypatch.setenv("MONOGRAM_DATA", str(tmp_path))
    (tmp_path / "gowalla.npz").touch()
    done = program("data", "list")
    assert done.code == 0
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert set(public.DATA_SETS) < set(lines)
    assert str(tmp_path / "gowalla.npz") in lines["gowalla"]
    assert str(tmp_path) not in lines["netflix"]
    found = {row["name"]: row for row in json.loads(program("data", "list", "--json").out)}
    assert found["gowalla"]["here"] == str(tmp_path / "gowalla.npz")
    assert found["netflix"]["here"] is None


def test_the_list_without_a_folder(program, monkeypatch):
    monkeypatch.delenv("MONOGRAM_DATA", raising=False)
    done = program("data", "list")
    assert done.code == 0
    assert "MONOGRAM_DATA" in done.err


@pytest.mark.parametrize("name", public.DATA_SETS)
def test_each_set_is_shown(program, name):
    one = public.get(name)
    done = program("data", "show", name)
    assert done.code == 0
    for text in (one.title, one.source, one.terms, one.reading, one.files[0], one.md5 or "by hand"):
        assert text in done.out
    assert json.loads(program("data", "show", name, "--json").out)["source"] == one.source


def test_a_name_that_is_not_there(program):
    for verb in ("show", "download"):
        done = program("data", verb, "gowala")
        assert done.code == 2
        assert "did you mean gowalla" in done.err
    assert program("data", "lst").code == 2


def test_a_download(program, offer, tmp_path):
    offer()
    done = program("data", "download", "tiny", "--to", tmp_path)
    assert done.code == 0
    assert done.out == f"{tmp_path / 'tiny.zip'}\n"
    assert "research use" in done.err
    assert (tmp_path / "tiny.zip").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["tiny.zip"]


def test_the_data_folder_is_where_it_goes(program, offer, tmp_path, monkeypatch):
    offer()
    monkeypatch.setenv("MONOGRAM_DATA", str(tmp_path))
    done = program("data", "download", "tiny", "--json")
    assert json.loads(done.out)["path"] == str(tmp_path / "tiny.zip")


def test_a_file_that_is_there_stays(program, offer, tmp_path):
    offer()
    path = tmp_path / "tiny.zip"
    path.write_text("mine")
    done = program("data", "download", "tiny", "--to", tmp_path)
    assert done.code == 3
    assert "--force" in done.err
    assert path.read_text() == "mine"
    assert program("data", "download", "tiny", "--to", tmp_path, "--force").code == 0
    assert path.read_bytes() == CONTENT
    done = program("data", "download", "tiny", "--to", tmp_path)
    assert done.code == 0
    assert "already" in done.err


@pytest.mark.parametrize(
    ("path", "md5", "word"),
    [("/tiny.zip", "0" * 32, "checksum"), ("/gone.zip", None, "404"), ("/short.zip", "0" * 32, "Nothing was written")],
)
def test_what_comes_wrong_is_not_kept(program, offer, tmp_path, path, md5, word):
    offer(path, md5)
    done = program("data", "download", "tiny", "--to", tmp_path)
    assert (done.code, done.out) == (3, "")
    assert word in done.err
    assert os.listdir(tmp_path) == []


def test_no_server_answers(program, offer, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        offer(at=f"http://127.0.0.1:{taken.getsockname()[1]}")
        done = program("data", "download", "tiny", "--to", tmp_path)
    assert done.code == 3
    assert "could not be fetched" in done.err
    assert os.listdir(tmp_path) == []


def test_a_server_that_stops_answering(program, offer, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        offer(at=f"http://127.0.0.1:{silent.getsockname()[1]}")
        done = program("data", "download", "tiny", "--to", tmp_path)
    assert done.code == 3
    assert "timed out" in done.err
    assert os.listdir(tmp_path) == []


def test_a_set_to_get_by_hand(program, tmp_path):
    done = program("data", "download", "netflix", "--to", tmp_path)
    assert done.code == 2
    assert "archive.org" in done.err
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(program, offer, tmp_path):
    offer()
    done = program("data", "download", "tiny", "--to", tmp_path / "none")
    assert done.code == 10
    assert "no folder" in done.err


def test_an_interrupt_leaves_no_file(program, offer, tmp_path, monkeypatch):
    offer()

    def stopped(_):
        yield CONTENT[:1_000], None
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "_received", stopped)
    assert program("data", "download", "tiny", "--to", tmp_path).code == 130
    assert os.listdir(tmp_path) == []
