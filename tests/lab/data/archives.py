"""Small archives in the shape of aclImdb, whole and broken."""

import io
import tarfile

REVIEWS = {
    "train/neg/0_3": "a dull film",
    "train/neg/10_1": "a film in both parts",
    "train/neg/2_4": "a tedious film",
    "train/pos/0_9": "a moving film<br />",
    "train/pos/1_7": "é, a bright film",
    "test/neg/0_2": "a film in both parts",
    "test/neg/1_2": "a weak film",
    "test/pos/0_10": "a clever film",
}


def archive(path, reviews=REVIEWS, extra=(), end=None):
    """Write an archive of reviews, then of `extra` members (TarInfo, bytes); cut it at `end`."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in reviews.items():
            add(tar, tarfile.TarInfo(f"aclImdb/{name}.txt"), text.encode())
        for info, data in extra:
            add(tar, info, data)
    path.write_bytes(content.getvalue()[:end])
    return path


def add(tar, info, data):
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data) if info.isreg() else None)


def folder(path, reviews=REVIEWS):
    for name, text in reviews.items():
        file = path / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return path
