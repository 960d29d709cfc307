"""Downloaded data sets: their folders and the download."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.lab.data.named import RemoteFile, source_of

CHUNK = 1 << 16  # bytes per read
TIMEOUT = 30  # seconds without an answer
Show = Callable[[float, float, str], None]  # (done, total, description)


def cache() -> Path:
    """Return the user's cache folder for downloaded files."""
    import pooch

    return Path(pooch.os_cache("regard"))


def folders(name: str, data_dir: Path | str | None = None) -> list[Path]:
    """Return the folders that are searched for a source, in order.

    `data_dir`, then the environment's ``REGARD_DATA``, each with the source's own subfolder, then
    the cache.
    """
    given_roots = [data_dir, os.environ.get("REGARD_DATA") or None]
    roots = [Path(folder).expanduser() for folder in given_roots if folder is not None]
    return [place for root in roots for place in (root / name, root)] + [cache() / name]


def present(name: str, data_dir: Path | str | None = None) -> Path | None:
    """Return the first of `folders` that contains the source, or None."""
    marks = source_of(name).marks
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

    Raises: no connection, a response that is not the file, a truncated or changed file, no space.
    """
    source = source_of(name)
    if source.by_hand:
        raise RegardError(
            f"{name} must be downloaded manually: {source.by_hand}; put {', '.join(source.put)} "
            f"into {folders(name, data_dir)[0]}"
        )
    folder = (Path(data_dir).expanduser() if data_dir is not None else cache()) / name
    if base is not None:
        base = base.rstrip("/")
    return [
        _bring(
            file, f"{base}/{file.name}" if base else file.url, folder, show or progress_lines(name)
        )
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


def progress_lines(name: str) -> Show:
    """Return the default progress report: a line on stderr every few seconds, in MB."""
    begun = last = time.monotonic()
    first = -1.0  # bytes that were complete before this download

    def show(done: float, total: float, what: str) -> None:
        nonlocal begun, last, first
        now = time.monotonic()
        if first < 0:
            begun, first = now, done
        if now - last >= 5 or done >= total > 0:
            last = now
            pace = (done - first) / max(now - begun, 1e-3)
            left = f", {(total - done) / pace:,.0f} s left" if pace and done < total else ""
            print(
                f"{name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB of {what}, "
                f"{pace / 1e6:.1f} MB/s{left}",
                file=sys.stderr,
            )

    return show
