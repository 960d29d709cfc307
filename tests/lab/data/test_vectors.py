import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.vectors import load_vectors
from tests.lab.data.small_files import refusal, static_vectors, write, zipped
from tests.lab.small_runs import trained_run

LINES = "the 0.5 -1 2\n, 1 1 1\nfilm 0.25 0 1e-2\nthe 9 9 9\n. . . 4 5 6\ncafé 7 8 9\n"
WORDS = ["[PAD]", "[UNK]", "café", "film", "zebra", "the"]


def right(vectors):
    assert vectors.ids.tolist() == [5, 3, 2]
    expected = np.array([[0.5, -1, 2], [0.25, 0, 0.01], [7, 8, 9]], dtype=np.float32)
    assert vectors.matrix.dtype == np.float32
    assert np.array_equal(vectors.matrix, expected)
    assert (vectors.found, vectors.asked, vectors.width) == (3, 6, 3)


def test_a_table_begins_a_network_with_its_own_tokens(tmp_path):
    matrix = np.arange(24, dtype=np.float32).reshape(6, 4) + 1
    words = ["[PAD]", "[UNK]", "good", "bad", "film", "dull"]
    static_vectors(tmp_path / "table", words, matrix, normalize=True)
    found = load_vectors(str(tmp_path / "table"), ["[PAD]", "[UNK]", "good"])
    assert np.array_equal(found.matrix, matrix[:3])
    assert (found.ids.tolist(), found.width, found.found) == ([0, 1, 2], 4, 3)
    rows = [f"good film {i}\tyes" for i in range(30)] + [f"bad film {i}\tno" for i in range(30)]
    (tmp_path / "x.tsv").write_text("\n".join(["text\tlabel", *rows]))
    given = [f"data={tmp_path / 'x.tsv'}", f"vectors={tmp_path / 'table'}", "threads=1", "steps=1"]
    trained_run(tmp_path / "run", "classification", "mean", [*given, "learning_rate=1e-9"])
    run = runs.load(tmp_path / "run")
    assert run.task.tokenizer.encode(["a dull film"]) == [[1, 5, 4]]  # "dull" is in no row
    assert run.folder.environment()["vectors"] == {"width": 4, "found": 6, "asked": 6}
    kept = run.model.embedding.weight.detach().numpy()
    scale = 0.1 / np.sqrt(np.square(matrix).mean())
    np.testing.assert_allclose(kept[1:], matrix[1:] * scale, atol=1e-6)
    assert not kept[0].any()
    assert run.predict("a dull film").unknown == ("a",)
    with pytest.raises(RegardError, match="its own tokenizer; leave tokenizer=bpe out"):
        runs.start(tmp_path / "x", "classification", "mean", [*given, "tokenizer=bpe"])


def test_text_gzip_and_zip(tmp_path):
    right(load_vectors(write(tmp_path / "v.txt", LINES), WORDS))
    right(load_vectors(write(tmp_path / "v.txt.gz", LINES), WORDS))
    right(load_vectors(zipped(tmp_path / "one.zip", {"v.txt": LINES}), WORDS))
    two = zipped(tmp_path / "two.zip", {"u.txt": "the 1\n", "v.txt": LINES})
    right(load_vectors(f"{two}/v.txt", WORDS))
    right(load_vectors(write(tmp_path / "header.txt", f"6 3\n{LINES}"), WORDS))
    right(load_vectors(write(tmp_path / "crlf.txt", LINES.replace("\n", "\r\n")), WORDS))


def test_names_are_looked_for(tmp_path, monkeypatch):
    wide = "the" + " 1" * 50 + "\n"
    data = tmp_path / "data"
    (data / "glove").mkdir(parents=True)
    write(data / "glove" / "glove.6B.50d.imdb.txt.gz", wide)
    assert load_vectors("glove-50", WORDS, data_dir=data).matrix[0, 0] == 1
    zipped(data / "glove" / "glove.6B.zip", {"glove.6B.50d.txt": wide.replace("1", "2")})
    assert load_vectors("glove-50", WORDS, data_dir=data).matrix[0, 0] == 2
    monkeypatch.setenv("REGARD_DATA", str(data))
    write(data / "glove" / "glove.6B.50d.txt", wide.replace("1", "3"))
    assert load_vectors("glove-50", WORDS).matrix[0, 0] == 3


BAD = {
    "v.txt:3: number 2 of the vector is nan": LINES.replace("0.25 0 ", "0.25 nan "),
    "v.txt:1: number 1 of the vector is inf": LINES.replace("0.5", "inf"),
    "v.txt:3: contains a value that is not a number": LINES.replace("0.25", "0,25"),
    "v.txt:3: 2 numbers, but the first line has 3": LINES.replace("0.25 ", ""),
    "v.txt:2: 4 numbers, but the first line has 3": LINES.replace(", 1", ", 1 1"),
    "v.txt:1: 0 numbers, but a vector is expected": "<html>\n",
    "no vector for any of the 6 tokens": "x 1 2\ny 1 2\n",
    "v.txt:2: the line is longer than 1,000,000 bytes": "the 1 2\n" + "x" * 10_000_000,
    "is empty": "",
}


@pytest.mark.parametrize("says", BAD)
def test_bad_vectors(tmp_path, says):
    assert says in refusal(load_vectors, write(tmp_path / "v.txt", BAD[says]), WORDS)


def test_archives_that_cannot_be_read(tmp_path):
    two = zipped(tmp_path / "two.zip", {"u.txt": "the 1\n", "v.txt": LINES})
    with pytest.raises(
        RegardError,
        match=r"cannot tell which member to read; give .*two.zip/NAME.txt; members: 'u.txt",
    ):
        load_vectors(two, WORDS)
    assert "which member" in refusal(load_vectors, f"{two}/w.txt", WORDS)
    two.write_bytes(two.read_bytes()[:-40])
    assert "truncated or not a zip archive" in refusal(load_vectors, two, WORDS)
    cut = write(tmp_path / "v.txt.gz", LINES * 1000)
    cut.write_bytes(cut.read_bytes()[:-20])
    assert "truncated" in refusal(load_vectors, cut, WORDS)


def test_names_that_are_not_there(tmp_path):
    with pytest.raises(RegardError, match=r"regard data fetch glove downloads it \(862 MB"):
        load_vectors("glove-100", WORDS, data_dir=tmp_path)
    assert "GloVe has 50, 100, 200, 300" in refusal(load_vectors, "glove-64", WORDS)
    assert "no such file" in refusal(load_vectors, tmp_path / "none.txt", WORDS)


def test_real_vectors(real):
    vectors = load_vectors("glove-50", ["king", "excellent", "queen", "the"], data_dir=real)
    rows = dict(zip(vectors.ids.tolist(), vectors.matrix, strict=True))
    assert sorted(rows) == [0, 2, 3]  # the partial file lacks 'excellent'
    assert rows[3][:3].tolist() == pytest.approx([0.418, 0.24968, -0.41242])
    cosine = rows[0] @ rows[2] / np.linalg.norm(rows[0]) / np.linalg.norm(rows[2])
    assert cosine == pytest.approx(0.784, abs=5e-4)
