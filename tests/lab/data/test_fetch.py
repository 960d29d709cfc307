import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.core.errors import RegardError
from regard.lab.data import fetch as module
from regard.lab.data.birthplaces import FILES
from regard.lab.data.fetch import cache, fetch, folders, present
from regard.lab.data.named import DATA, RemoteFile, Source, source_of
from regard.lab.data.sources import load_corpus
from tests.lab.data.archives import archive
from tests.lab.data.small_files import refusal, write

CONTENT = bytes(range(256)) * 3000


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = {}, []
        self.base = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        status, length, body = self.server.answers.get(self.path, (404, 3, b"no!"))
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    file = RemoteFile("https://canonical.invalid/a/tiny.bin", len(CONTENT), sha256)
    source = Source("a tiny file", "tests", (file,), "none", "nobody", ("tiny.bin",))
    monkeypatch.setitem(DATA.rows, "tiny", source)


def test_good_answer_is_kept_and_not_asked_for_again(server, tmp_path):
    server.answers["/tiny.bin"] = (200, len(CONTENT), CONTENT)
    seen = []

    def show(*progress):
        seen.append(progress)

    assert present("tiny", tmp_path) is None
    (path,) = fetch("tiny", tmp_path, base=server.base + "/", show=show)
    assert path == tmp_path / "tiny" / "tiny.bin"
    assert path.read_bytes() == CONTENT
    assert present("tiny", tmp_path) == tmp_path / "tiny"
    assert seen[-1] == (len(CONTENT), len(CONTENT), "tiny.bin")
    assert [done for done, _, _ in seen[:3]] == [65536, 131072, 196608]
    assert fetch("tiny", tmp_path, base=server.base) == [path]
    assert server.asked == ["/tiny.bin"]


def test_a_folder_at_home_is_the_same_for_fetching_and_for_looking(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    server.answers["/tiny.bin"] = (200, len(CONTENT), CONTENT)
    (path,) = fetch("tiny", "~/d", base=server.base)
    assert path == tmp_path / "d" / "tiny" / "tiny.bin"
    assert present("tiny", "~/d") == path.parent


BAD = {
    "a different sha256": (200, len(CONTENT), CONTENT[:-1] + b"x"),
    "connection lost": (200, len(CONTENT), CONTENT[:5000]),
    "the server responded with an error 404": (404, 4, b"gone"),
    "the server responded with an error 500": (500, 4, b"oops"),
    "the response exceeds the expected 768,000 bytes": (200, None, CONTENT * 20),
}


@pytest.mark.parametrize("says", [*BAD, "cut off without a length"])
def test_bad_answer_leaves_nothing(server, tmp_path, says):
    server.answers["/tiny.bin"] = BAD.get(says, (200, None, CONTENT[:5000]))
    told = refusal(fetch, "tiny", tmp_path, base=server.base)
    assert (says if says in BAD else "a different sha256") in told
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_damaged_file_is_replaced(server, tmp_path):
    server.answers["/tiny.bin"] = (200, len(CONTENT), CONTENT)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.bin").write_bytes(CONTENT[:100])
    (path,) = fetch("tiny", tmp_path, base=server.base)
    assert path.read_bytes() == CONTENT


def test_damaged_file_stays_where_the_answer_is_bad(server, tmp_path):
    (tmp_path / "tiny").mkdir()
    path = write(tmp_path / "tiny" / "tiny.bin", b"mine")
    assert "404" in refusal(fetch, "tiny", tmp_path, base=server.base)
    assert path.read_bytes() == b"mine"


def test_without_a_server_the_error_says_where_to_put_the_file(server, tmp_path):
    server.server_close()
    assert refusal(fetch, "tiny", tmp_path, base=server.base) == (
        f"{server.base}/tiny.bin: no connection; or download it manually into {tmp_path / 'tiny'}"
    )


def test_full_disk(server, tmp_path, monkeypatch):
    server.answers["/tiny.bin"] = (200, len(CONTENT), CONTENT)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.move", full)
    with pytest.raises(RegardError, match="cannot write: No space left on device"):
        fetch("tiny", tmp_path, base=server.base)
    assert not (tmp_path / "tiny" / "tiny.bin").exists()


def test_imdb_is_fetched_where_it_is_nowhere(server, tmp_path, monkeypatch, capsys):
    path = archive(tmp_path / "aclImdb_v1.tar.gz")
    content = path.read_bytes()
    path.unlink()
    server.answers["/aclImdb_v1.tar.gz"] = (200, len(content), content)
    file = RemoteFile(
        f"{server.base}/aclImdb_v1.tar.gz", len(content), hashlib.sha256(content).hexdigest()
    )
    known = source_of("imdb")
    monkeypatch.setitem(
        DATA.rows, "imdb", Source("", "", (file,), known.licence, known.cite, known.marks)
    )
    assert len(load_corpus("imdb").train) == 4
    assert "imdb: 0.0 of 0.0 MB of aclImdb_v1.tar.gz" in capsys.readouterr().err
    assert (cache() / "imdb" / "aclImdb_v1.tar.gz").read_bytes() == content
    assert len(load_corpus("imdb").train) == 4
    assert server.asked == ["/aclImdb_v1.tar.gz"]


def test_what_cannot_be_fetched(tmp_path):
    assert "it has no fixed checksum; download https://www." in refusal(fetch, "eng-fra", tmp_path)
    assert "no data set is called 'imbd'; did you mean imdb" in refusal(fetch, "imbd", tmp_path)


def test_what_is_put_there_by_hand_is_named_with_its_folder(tmp_path, monkeypatch):
    assert set(source_of("birthplaces").put) == set(FILES.values())
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "mine"))
    assert refusal(fetch, "birthplaces") == (
        "birthplaces must be downloaded manually: it is part of a5.zip, the code of assignment 5 "
        "of CS224N 2022, from https://web.stanford.edu/class/archive/cs/cs224n/cs224n.1224/; put "
        "wiki.txt, birth_places_train.tsv, birth_dev.tsv, birth_test_inputs.tsv into "
        f"{tmp_path / 'mine' / 'birthplaces'}"
    )
    with pytest.raises(RegardError, match=r"manually; put fra-eng\.zip into .*given.eng-fra$"):
        fetch("eng-fra", tmp_path / "given")
    monkeypatch.delenv("REGARD_DATA")
    assert refusal(fetch, "birthplaces").endswith(f"into {cache() / 'birthplaces'}")


def test_folders_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", "/data")
    assert list(map(str, folders("imdb", tmp_path))) == [
        str(tmp_path / "imdb"),
        str(tmp_path),
        "/data/imdb",
        "/data",
        str(cache() / "imdb"),
    ]
    monkeypatch.setenv("REGARD_DATA", "")
    assert folders("imdb") == [cache() / "imdb"]


def test_the_table():
    for name, source in DATA.items():
        if not isinstance(source, Source):
            continue
        assert bool(source.files) != bool(source.by_hand), name
        assert bool(source.put) == bool(source.by_hand), name
        assert source.marks
        assert source.licence
        for file in source.files:
            assert len(file.sha256) == 64
            assert file.url.startswith("https://")
            assert file.bytes > 0
    assert source_of("imdb").bytes == 84_125_825


def test_lines_of_progress_are_few(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    show = module.progress_lines("tiny")
    for second in range(1, 13):
        clock[0] = float(second)
        show(second * 1e6, 12e6, "tiny.bin")
    assert capsys.readouterr().err.splitlines() == [
        "tiny: 5.0 of 12.0 MB of tiny.bin, 1.0 MB/s, 7 s left",
        "tiny: 10.0 of 12.0 MB of tiny.bin, 1.0 MB/s, 2 s left",
        "tiny: 12.0 of 12.0 MB of tiny.bin, 1.0 MB/s",
    ]
