"""Requests generated from a server's schema, half of them with an invalid value."""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

TEXT = "a film that was far too long"

ODD: tuple[Any, ...] = (
    None,
    -1,
    0,
    1e308,
    2**70,
    "",
    "x" * 5000,
    "\x00",
    [],
    {},
    [[]],
    True,
    "\u202e",
    {"a": 1},
)


def made_of(
    schema: dict[str, Any], run: str, chance: random.Random, many: int
) -> Iterator[tuple[str, str, Any]]:
    """Yield method, path and body of requests from a schema."""
    parts = schema["components"]["schemas"]
    calls = [(m, p, op) for p, ops in schema["paths"].items() for m, op in ops.items()]
    for _ in range(many):
        method, path, call = chance.choice(calls)
        pairs = [(p["name"], _value(p["schema"], run, chance)) for p in call.get("parameters", [])]
        asked = "&".join(f"{name}={quote(str(value))[:2000]}" for name, value in pairs)
        body = None
        if "requestBody" in call:
            named = call["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            fields = parts[named.rsplit("/", 1)[1]]["properties"]
            body = {
                name: run if name == "run" and chance.random() < 0.8 else _value(f, run, chance)
                for name, f in fields.items()
                if chance.random() < 0.7 or name == "run"
            }
        yield method.upper(), f"{path}?{asked}" if asked else path, body


def _value(schema: dict[str, Any], run: str, chance: random.Random) -> Any:
    if chance.random() < 0.3:
        return chance.choice(ODD)
    kinds = schema.get("anyOf", [schema])
    kind = chance.choice(kinds)
    if kind.get("type") in ("integer", "number"):
        return chance.randint(0, 9)
    if kind.get("type") == "array":
        return [TEXT] * chance.randint(0, 3)
    return chance.choice((run, TEXT, "a good film"))
