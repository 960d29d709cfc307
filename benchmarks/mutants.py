"""Random changes of files, such as those by disks, networks and strangers.

Half of the mutants are valid to a parser and have another value: another number, another type, or
one key less. The other half have other bytes.
"""

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

DEEP = 5_000  # lists inside each other
#: What a value becomes: of another kind, at the edges of numbers, long, deep.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e-320, 1e308, 2**31, 2**63, -(2**63), 10**30,
    10**400, float("nan"), float("inf"), "", " ", "0", "nan", "x" * 10_000, "\ud800", "\x00",
    "../x", "/", [], {}, [[]], [None], [0] * 1_000, {"": None}, {"a": {"b": []}},
)  # fmt: skip


def mutate(name: str, data: bytes, chance: random.Random) -> bytes:
    """Return the content of a file, changed in one place or a few.

    ``name`` determines the layout: JSON, JSON lines, TOML, safetensors, gzip and zip are changed
    inside too.
    """
    inside = next((change for ending, change in INSIDE if name.endswith(ending)), None)
    if inside is not None and chance.random() < 0.5:
        return inside(data, chance)
    return other_bytes(data, chance)


def other_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, drop, repeat, insert or zero some bytes, or cut the file off."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        at = chance.randrange(len(found) + 1)
        length = min(chance.choice((1, 1, 4, 16, 200)), len(found) - at)
        how = chance.randrange(7)
        if how == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del found[at : at + length]
        elif how == 2:
            found[at:at] = found[at : at + length]
        elif how == 3:
            found[at:at] = chance.randbytes(length)
        elif how == 4:
            found[at : at + length] = bytes(length)
        elif how == 5:
            found[at : at + length] = chance.choice((b"9", b"-", b'"', b"[", b"\xff")) * length
        else:
            del found[at:]
    return bytes(found)


def other_json(data: bytes, chance: random.Random) -> bytes:
    """Put another value in one place of a JSON document."""
    try:
        value = json.loads(data)
    except ValueError:
        return other_bytes(data, chance)
    return written(changed(value, chance), chance)


def other_line(data: bytes, chance: random.Random) -> bytes:
    """Put another value in one place of one line of JSON."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return b"{}\n"
    at = chance.randrange(len(lines))
    lines[at] = other_json(lines[at], chance) + b"\n"
    return b"".join(lines)


def other_toml(data: bytes, chance: random.Random) -> bytes:
    """Put another value after one equals sign."""
    lines = data.decode().split("\n")
    places = [i for i, line in enumerate(lines) if " = " in line]
    at = chance.choice(places)
    key = lines[at].partition(" = ")[0]
    value = chance.choice(
        ("0", "-1", "1", "2", "true", '""', '"x"', "1e308", "nan", "inf", "[]", "{}", "4096",
         "1000000", "2147483648", "9" * 30, "1" * 5_000, '"../../x"', '"/dev/zero"')
    )  # fmt: skip
    lines[at] = chance.choice((f"{key} = {value}", "", f"{key}x = {value}"))
    return "\n".join(lines).encode()


def other_header(data: bytes, chance: random.Random) -> bytes:
    """Put another value into the header of a safetensors file, or other numbers after it."""
    length = int.from_bytes(data[:8], "little")
    head, body = data[8 : 8 + length], data[8 + length :]
    if chance.random() < 0.3:  # sound, with numbers that nobody has trained
        numbers = bytearray(body)
        for _ in range(min(len(numbers) // 4, 50)):
            at = chance.randrange(len(numbers) // 4) * 4
            numbers[at : at + 4] = chance.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4))
        return data[: 8 + length] + bytes(numbers)
    head = other_json(head, chance)
    return len(head).to_bytes(8, "little") + head + body


def other_gzip(data: bytes, chance: random.Random) -> bytes:
    """Change the content, and pack it again."""
    return gzip.compress(other_bytes(gzip.decompress(data), chance), 1)


def other_zip(data: bytes, chance: random.Random) -> bytes:
    """Change the content, and pack it again, perhaps by another method."""
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2,
                            zipfile.ZIP_LZMA))  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method) as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, other_bytes(content, chance) if chance.random() < 0.3 else content)
    packed = out.getvalue()
    return other_bytes(packed, chance) if chance.random() < 0.7 else packed


INSIDE: tuple[tuple[str, Callable[[bytes, random.Random], bytes]], ...] = (
    (".json", other_json),
    (".jsonl", other_line),
    (".toml", other_toml),
    (".safetensors", other_header),
    (".gz", other_gzip),
    (".zip", other_zip),
)


def changed(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with another value, a key less or a key more in one place."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        how = chance.random()
        if how < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.25:
            return {
                **value,
                chance.choice(("", "x", key + "s", key.upper())): chance.choice(VALUES),
            }
        return {**value, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        how = chance.random()
        if how < 0.15:
            return value[:at] + value[at + 1 :]
        if how < 0.25:
            return value[:at] + value[at : at + 1] + value[at:]
        return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.3:
        return chance.choice((value + 1, value - 1, -value, value * 1_000, value * 10**6))
    if isinstance(value, str) and value and chance.random() < 0.3:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice(("", "x", "é", "\n", "0", ":", "/")) + value[at + 1 :]
    return chance.choice(VALUES)


def written(value: Any, chance: random.Random) -> bytes:
    """Return a value as JSON, sometimes with very deep nesting."""
    text = json.dumps(value)  # escapes what UTF-8 cannot say
    if chance.random() < 0.03:
        text = re.sub(r"null|true|\d+", "[" * DEEP + "]" * DEEP, text, count=1)
    return text.encode()
