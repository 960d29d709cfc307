"""What a server takes on: every limit that a request can meet, by its name."""

from pydantic import Field

from regard.settings import Settings


class Limits(Settings):
    """A request over a limit is refused with the limit's name and number.

    ``queue``: requests that wait or are at work; one more gets 503 and Retry-After. ``deadline``:
    seconds from a request's arrival to its answer, else 504. ``body``: bytes of a request.
    ``texts`` of one request, ``tokens`` of one text, ``new_tokens`` written by /generate, ``best``
    texts asked for of one, ``numbers`` of weights in one plain answer, ``weights`` of all layers of
    one text that is looked at, four bytes each. ``batch``: texts of several requests that the model
    answers at once. ``connections``: open at a time; where more come, those
    that are silent are ended. ``drain``: seconds that requests at work may
    still take when the server is asked to end. ``keep``: models in memory. ``looks``: texts whose
    weights are kept for the next question about them.
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
    drain: float = Field(default=8.0, ge=0, le=600)
    keep: int = Field(default=4, ge=1, le=100)
    looks: int = Field(default=6, ge=1, le=100)
