"""Named data sets: what they are, where they are stored, and how they are downloaded."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, look_up

CHUNK = 1 << 16  # bytes asked for at a time
TIMEOUT = 30  # seconds without an answer
Show = Callable[[float, float, str], None]  # (done, total, description)


@dataclass(frozen=True)
class RemoteFile:
    """A file at its canonical address, with the size and sha256 that a download must have."""

    url: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A named data set: its use, files, licence and citation."""

    what: str
    used_for: str
    files: tuple[RemoteFile, ...]
    licence: str
    cite: str
    marks: tuple[str, ...]  # file patterns, one of which marks the folder of the source
    by_hand: str = ""  # why it must be downloaded manually, and how
    put: tuple[str, ...] = ()  # the files to put into its folder manually

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def _multi30k(name: str, size: int, sha256: str) -> RemoteFile:
    root = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    return RemoteFile(f"{root}/{name}", size, sha256)


SOURCES: dict[str, Source] = {
    "imdb": Source(
        "25,000 + 25,000 film reviews, positive or negative",
        "classification",
        (
            RemoteFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        "no formal licence; free for research with citation",
        "Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011",
        ("train.jsonl.gz", "aclImdb", "train/pos", "aclImdb_v1.tar.gz"),
    ),
    "glove": Source(
        "vectors of 400,000 English words, of size 50, 100, 200 and 300",
        "vectors=glove-50, glove-100, …",
        (
            RemoteFile(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                862_182_613,
                "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            ),
        ),
        "Open Data Commons PDDL 1.0",
        "Pennington, Socher, Manning, GloVe: Global Vectors for Word Representation, EMNLP 2014",
        ("glove.6B.zip", "glove.6B.*.txt", "glove.6B.*.txt.gz"),
    ),
    "multi30k": Source(
        "29,000 English image captions and their German translations",
        "translation",
        (
            _multi30k(
                "train.en.gz",
                568_929,
                "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            ),
            _multi30k(
                "train.de.gz",
                637_044,
                "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            ),
            _multi30k(
                "val.en.gz",
                21_650,
                "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            ),
            _multi30k(
                "val.de.gz",
                24_681,
                "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            ),
            _multi30k(
                "test_2016_flickr.en.gz",
                21_077,
                "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            ),
            _multi30k(
                "test_2016_flickr.de.gz",
                22_890,
                "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            ),
            _multi30k(
                "test_2017_flickr.en.gz",
                19_138,
                "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
            ),
            _multi30k(
                "test_2017_flickr.de.gz",
                21_471,
                "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
            ),
        ),
        "research only, non-commercial",
        "Elliott, Frank, Sima'an, Specia, Multi30K, 2016",
        ("train.en.gz",),
    ),
    "eng-fra": Source(
        "English sentences and their French translations, by Tatoeba's volunteers",
        "translation",
        (),
        "CC BY 2.0 FR",
        "Tatoeba project, https://tatoeba.org; https://www.manythings.org/anki",
        ("fra-eng.zip", "fra.txt"),
        "its content changes from time to time, so it has no fixed checksum; download "
        "https://www.manythings.org/anki/fra-eng.zip manually",
        ("fra-eng.zip",),
    ),
    "birthplaces": Source(
        "birthplaces: 2,937 biographies, 2,500 questions with answers",
        "question answering after pretraining",
        (),
        "CC BY-SA 3.0 (Wikipedia)",
        "Stanford CS224N 2022, assignment 5",
        ("wiki.txt",),
        "it is part of a5.zip, the code of assignment 5 of CS224N 2022, from "
        "https://web.stanford.edu/class/archive/cs/cs224n/cs224n.1224/",
        ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv", "birth_test_inputs.tsv"),
    ),
}


def cache() -> Path:
    """Return the user's cache folder for downloaded files."""
    import pooch

    return Path(pooch.os_cache("regard"))


def folders(name: str, data_dir: Path | str | None = None) -> list[Path]:
    """Return the folders where a source is looked for, in order.

    `data_dir`, then the environment's ``REGARD_DATA``, each with the source's own subfolder, then
    the cache.
    """
    given = [data_dir, os.environ.get("REGARD_DATA") or None]
    roots = [Path(folder).expanduser() for folder in given if folder is not None]
    return [place for root in roots for place in (root / name, root)] + [cache() / name]


def present(name: str, data_dir: Path | str | None = None) -> Path | None:
    """Return the first of `folders` that contains the source, or None."""
    marks = look_up(SOURCES, name, "data set").marks
    for folder in folders(name, data_dir):
        if any(next(folder.glob(mark), None) for mark in marks):
            return folder
    return None


def fetch(
    name: str,
    data_dir: Path | str | None = None,
    *,
    show: Show | None = None,
    base: str | None = None,
) -> list[Path]:
    """Download a source's files into `data_dir`/name (or the cache) and return their paths.

    A file is downloaded under a temporary name, checked against its sha256 and renamed, so it is
    always complete. An intact existing file is not downloaded again. `base` replaces the address
    up to the file's name, for a mirror.

    Errors: no connection, a response that is not the file, a truncated or changed file, no space.
    """
    source = look_up(SOURCES, name, "data set")
    if source.by_hand:
        raise RegardError(
            f"{name} must be downloaded manually: {source.by_hand}; put {', '.join(source.put)} "
            f"into {folders(name, data_dir)[0]}"
        )
    folder = (Path(data_dir).expanduser() if data_dir is not None else cache()) / name
    if base is not None:
        base = base.rstrip("/")
    return [
        _bring(file, f"{base}/{file.name}" if base else file.url, folder, show or _lines(name))
        for file in source.files
    ]


def _bring(file: RemoteFile, url: str, folder: Path, show: Show) -> Path:
    import pooch
    import requests

    def download(url: str, place: str, _pooch: Any) -> None:
        done = 0
        plain = {
            "Accept-Encoding": "identity"
        }  # no transfer compression, so that the size is known
        with (
            requests.get(url, stream=True, timeout=TIMEOUT, headers=plain) as answer,
            Path(place).open("wb") as aside,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_content(CHUNK):
                done += len(chunk)
                if done > file.bytes:
                    raise RegardError(
                        f"{url}: the response exceeds the expected {file.bytes:,} bytes"
                    )
                aside.write(chunk)
                show(done, file.bytes, file.name)

    pooch.get_logger().setLevel("WARNING")
    known = f"sha256:{file.sha256}"
    by_hand = f"; or download it manually into {folder}"
    try:
        pooch.retrieve(url, known, file.name, folder, downloader=download)
    except requests.HTTPError as error:
        answer = "" if error.response is None else f" {error.response.status_code}"
        raise RegardError(f"{url}: the server responded with an error{answer}{by_hand}") from None
    except requests.exceptions.ChunkedEncodingError:
        raise RegardError(f"{url}: connection lost; no file was saved{by_hand}") from None
    except requests.RequestException as error:
        unreached = isinstance(error, requests.ConnectionError | requests.Timeout)
        reason = "no connection" if unreached else f"request failed ({error})"
        raise RegardError(f"{url}: {reason}{by_hand}") from None
    except ValueError:  # pooch raises it for a different hash
        raise RegardError(
            f"{url}: the downloaded file has a different sha256 than expected; no file was saved"
            f"{by_hand}"
        ) from None
    except OSError as error:
        place = folder / file.name
        raise RegardError(f"{place}: cannot write: {error.strerror or error}") from None
    return folder / file.name


def _lines(name: str) -> Show:
    """Return the default progress report: a line on stderr every few seconds."""
    begun = last = time.monotonic()

    def show(done: float, total: float, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 5 or done >= total > 0:
            last = now
            print(
                f"{name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB of {what}, "
                f"{done / 1e6 / max(now - begun, 1e-3):.1f} MB/s",
                file=sys.stderr,
            )

    return show
