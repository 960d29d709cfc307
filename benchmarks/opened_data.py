"""Data files that regard reads: how valid ones are made, and how they are used."""

import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.lab.data.data_source import NAMED, Columns, DataSource

WORDS = "good bad film plot actor fine awful the a is was not very dull bright".split()
#: How a table of numbers is read as texts.
BY_NUMBER = {"a.numbers.csv": Columns("x", "y")}


@dataclass(frozen=True)
class Target:
    """One kind of file: ``make`` writes a valid folder, ``files`` of it are changed, and ``uses``
    are the ways to use it."""

    name: str
    make: Callable[[Path], object]
    files: tuple[str, ...]
    uses: tuple[Callable[[Path], object], ...]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Return texts of a few words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, 9))) + "." for _ in range(count)]


def tables(folder: Path) -> None:
    """Write texts and labels in every layout of a table."""
    rows = [(text, ("neg", "pos")[i % 2], i % 3) for i, text in enumerate(sentences(12))]
    csv = "text,label,group\n" + "".join(f'"{t}",{label},{g}\n' for t, label, g in rows)
    (folder / "a.csv").write_text(csv)
    (folder / "a.numbers.csv").write_text("x,y\n" + "".join(f"{i},{i * i}\n" for i in range(9)))
    (folder / "a.tsv").write_text(csv.replace('"', "").replace(",", "\t"))
    (folder / "a.csv.gz").write_bytes(gzip.compress(csv.encode()))
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"text": t, "label": label, "group": g}) + "\n" for t, label, g in rows)
    )
    block = "# label = pos\n1\tGood\tgood\tADJ\t_\t_\t2\tamod\t_\t_\n"
    block += "2\tfilm\tfilm\tN\t_\t_\t0\troot\t_\t_\n\n"
    (folder / "a.conllu").write_text(block * 3)


def read_tables(folder: Path) -> None:
    """Read each table as examples, columns of numbers and texts."""
    from regard.lab.data.columns import read_columns
    from regard.lab.data.files import read_examples
    from regard.lab.data.text_rows import text_rows

    def examples(path: Path) -> None:
        read_examples(path, BY_NUMBER.get(path.name, NAMED))

    each(
        *(partial(examples, path) for path in sorted(folder.iterdir())),
        *(lambda path=path: list(text_rows(path)) for path in sorted(folder.glob("a.[jt]s*"))),
        lambda: read_columns(folder / "a.numbers.csv"),
    )


def each(*calls: Callable[[], object]) -> None:
    """Make every call; raise the first refusal afterwards."""
    refusals = []
    for call in calls:
        try:
            call()
        except RegardError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def pairs(folder: Path) -> None:
    """Write pairs of texts as a table, JSON lines, two files and an archive."""
    sides = list(zip(sentences(8), sentences(8, 1), strict=True))
    (folder / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in sides))
    rows = [json.dumps({"source": a, "target": b}) + "\n" for a, b in sides]
    (folder / "a.jsonl").write_text("".join(rows))
    (folder / "b.de").write_text("".join(f"{a}\n" for a, _ in sides))
    (folder / "b.en").write_text("".join(f"{b}\n" for _, b in sides))
    with zipfile.ZipFile(folder / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "a.tsv", "a.tsv")


def read_all_pairs(folder: Path) -> None:
    """Read each as pairs."""
    from regard.lab.data.pair_files import read_pairs

    each(
        lambda: read_pairs(folder / "a.tsv"),
        lambda: read_pairs(folder / "a.jsonl"),
        lambda: read_pairs(DataSource(folder / "b.de", target=folder / "b.en")),
        lambda: read_pairs(folder / "c.zip"),
    )


def vectors(folder: Path) -> None:
    """Write word vectors as text, gzip and archives by two methods."""
    chance = random.Random(0)
    lines = [f"{w} " + " ".join(f"{chance.gauss(0, 1):.4f}" for _ in range(5)) for w in WORDS]
    data = ("\n".join(lines) + "\n").encode()
    (folder / "v.txt").write_bytes(data)
    (folder / "v.txt.gz").write_bytes(gzip.compress(data))
    for name, method in (("v.zip", zipfile.ZIP_DEFLATED), ("w.zip", zipfile.ZIP_STORED)):
        with zipfile.ZipFile(folder / name, "w", method) as archive:
            archive.writestr("v.txt", data)


def read_vectors(folder: Path) -> None:
    """Read each for a vocabulary."""
    from regard.lab.data.vectors import load_vectors

    each(*(lambda path=path: load_vectors(path, WORDS) for path in sorted(folder.iterdir())))


def reviews(folder: Path) -> None:
    """Write IMDB's layout as an archive, and as JSON lines."""
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for split in ("train", "test"):
            for kind, rating in (("neg", 2), ("pos", 9)):
                urls = "".join(f"http://www.imdb.com/title/tt000000{i}/usercomments\n"
                               for i in range(3))  # fmt: skip
                _member(archive, f"aclImdb/{split}/urls_{kind}.txt", urls)
                for i, text in enumerate(sentences(3)):
                    _member(archive, f"aclImdb/{split}/{kind}/{i}_{rating}.txt", text)


def _member(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text)
    archive.addfile(info, io.BytesIO(text.encode()))


def read_reviews(folder: Path) -> None:
    """Read the reviews."""
    from regard.lab.data import imdb
    from regard.lab.data.texts import imdb_texts

    each(lambda: imdb.load(folder / "aclImdb_v1.tar.gz"),
         lambda: imdb_texts(folder / "aclImdb_v1.tar.gz"))  # fmt: skip


def described() -> Any:
    """Return a table as in Hugging Face datasets, with the names of its classes."""
    import pyarrow

    features = {"text": {"dtype": "string", "_type": "Value"},
                "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
                "group": {"dtype": "string", "_type": "Value"}}  # fmt: skip
    texts = sentences(40)
    columns = {"text": texts, "label": [i % 2 for i in range(40)],
               "group": [str(i % 3) for i in range(40)]}  # fmt: skip
    says = json.dumps({"info": {"features": features}})
    return pyarrow.table(columns).replace_schema_metadata({"huggingface": says})


def parquet(folder: Path) -> None:
    """Write texts and labels by every compression and encoding, in two kinds of pages."""
    from pyarrow.parquet import write_table

    for method in ("none", "snappy", "gzip", "zstd", "brotli", "lz4"):
        write_table(described(), folder / f"{method}.parquet", compression=method)
    write_table(described(), folder / "plain.parquet", compression="none", use_dictionary=False)
    write_table(described(), folder / "pages.parquet", data_page_version="2.0", row_group_size=9)


def saved_dataset(folder: Path) -> None:
    """Write a saved data set of two files, one packed."""
    import pyarrow

    place = folder / "train"
    place.mkdir()
    names = ("data-00000-of-00002.arrow", "data-00001-of-00002.arrow")
    for name, method in zip(names, (None, "lz4"), strict=True):
        options = pyarrow.ipc.IpcWriteOptions(compression=method)
        with (
            pyarrow.OSFile(str(place / name), "wb") as file,
            pyarrow.ipc.new_stream(file, described().schema, options=options) as writer,
        ):
            writer.write_table(described(), max_chunksize=10)
    (place / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names]}))


def read_arrow(folder: Path) -> None:
    """Read every row of each."""
    from regard.lab.data.files import read_examples

    paths = [folder / "train"] if (folder / "train").is_dir() else sorted(folder.iterdir())
    each(*(partial(read_examples, path, Columns(group="group")) for path in paths))


DATA = (
    Target("tables", tables, ("*",), (read_tables,)),
    Target("pairs", pairs, ("*",), (read_all_pairs,)),
    Target("vectors", vectors, ("*",), (read_vectors,)),
    Target("imdb", reviews, ("*",), (read_reviews,)),
    Target("parquet", parquet, ("*",), (read_arrow,)),
    Target("saved-dataset", saved_dataset, ("train/*",), (read_arrow,)),
)
