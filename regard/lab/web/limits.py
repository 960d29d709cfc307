"""Limits of the server by name."""

from pydantic import Field

from regard.core.settings import Settings


class Limits(Settings):
    """Limits of a server. A request over a limit is refused with the limit's name and value.

    ``queue``: requests queued or running; one more gets 503 with Retry-After. ``deadline``:
    seconds from arrival to answer, else 504. ``body``: bytes of a request. ``texts`` per request,
    ``tokens`` per text, ``new_tokens`` per /generate, ``best``: outputs per text. ``numbers``:
    weights in an answer of /attention. ``weights``: attention weights of all layers for one text,
    four bytes each. ``batch``: maximum texts of several requests in one call of the model.
    ``connections``: open connections; beyond that, idle ones are closed. ``header_timeout``:
    seconds from a connection to the whole head of a request, and ``body_timeout`` from there to
    the whole body, else 408. ``send_timeout``: seconds in which a client must read an answer.
    ``linger``: seconds for reading and dropping the rest of a request that was answered
    early. ``drain``: seconds for requests in flight when the server stops. ``keep``: models in
    memory. ``looks``: texts whose weights are cached.
    """

    queue: int = Field(default=64, ge=1, le=100_000)
    deadline: float = Field(default=30.0, gt=0, le=3600)
    body: int = Field(default=1_000_000, ge=1_000, le=1_000_000_000)
    texts: int = Field(default=256, ge=1, le=100_000)
    tokens: int = Field(default=4_096, ge=1, le=1_000_000)
    new_tokens: int = Field(default=256, ge=1, le=100_000)
    best: int = Field(default=10, ge=1, le=100)
    numbers: int = Field(default=1_000_000, ge=1, le=100_000_000)
    weights: int = Field(default=250_000_000, ge=1, le=100_000_000_000)
    batch: int = Field(default=32, ge=1, le=10_000)
    connections: int = Field(default=512, ge=1, le=100_000)
    header_timeout: float = Field(default=10.0, gt=0, le=3600)
    body_timeout: float = Field(default=30.0, gt=0, le=3600)
    send_timeout: float = Field(default=30.0, gt=0, le=3600)
    linger: float = Field(default=5.0, gt=0, le=600)
    drain: float = Field(default=8.0, ge=0, le=600)
    keep: int = Field(default=4, ge=1, le=100)
    looks: int = Field(default=6, ge=1, le=100)
