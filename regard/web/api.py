"""The JSON API: questions to runs, answered by one thread through a queue."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException

import regard
from regard.errors import RegardError
from regard.memory import trim
from regard.tasks.writing.streaming import Drawing
from regard.web.answers import Answers
from regard.web.asked import (
    AskedAttention,
    AskedDisagreements,
    AskedLook,
    AskedMatrix,
    AskedTexts,
    AskedTranslation,
    AskedWriting,
)
from regard.web.connections import Connections
from regard.web.guard import LOCAL, Guard
from regard.web.limits import Limits
from regard.web.metrics import Metrics
from regard.web.page import add_page
from regard.web.queue import Job, Queue
from regard.web.refusal import RefusedError, over, too_late
from regard.web.shelf import Shelf

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": says}
    for status, says in {
        400: "A mistake that one line explains.",
        413: "The body is over its limit.",
        422: "A field is missing, unknown or over a limit, which the line names.",
        503: "The queue is full; Retry-After says when to ask again.",
        504: "Not answered before the deadline.",
    }.items()
}
TRIM = 30.0  # seconds between two times that free memory is handed back
ANSWERED = {200: {"description": "The answer."}}


class Api:
    """The application and what it stands on."""

    def __init__(self, shelf: Shelf, limits: Limits, places: Connections) -> None:
        self.shelf, self.limits, self.places = shelf, limits, places
        self.queue, self.answers = Queue(limits), Answers(shelf, limits)
        self.metrics = Metrics(self.gauges)

    async def ask(self, request: Request, job: Job) -> Any:
        """Take a place, wait for the answer; the place is free again when the asker leaves.

        Errors: 503 when the queue is full, 504 when the deadline has passed.
        """
        left = self._put(request, job)
        answer = asyncio.wrap_future(job.answer)
        gone = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({answer, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and time.monotonic() < job.deadline:
                return answer.result()
            if gone.done():
                raise RefusedError(499, "the asker has left")
            raise too_late(self.limits)
        finally:
            gone.cancel()
            if not answer.done():
                self.queue.leave(job)
                answer.cancel()
            elif not answer.cancelled():
                answer.exception()  # which is looked at, or too late

    def _put(self, request: Request, job: Job) -> float:
        """Take a place; the seconds that are left of the deadline. Errors: 503, no place."""
        now = time.monotonic()
        job.deadline = request.scope.get("arrived", now) + self.limits.deadline
        self.queue.put(job)
        return max(job.deadline - now, 0.0)

    async def told(self, request: Request, job: Job) -> AsyncIterator[bytes]:
        """Pieces of an answer as JSON lines, as they come; the last one says how it ended.

        Errors: those of the first piece, as `ask` has them; later ones are a line.
        """
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def tell(piece: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        job.told = tell
        job.answer.add_done_callback(tell)
        left = self._put(request, job)
        gone, first = asyncio.ensure_future(_left(request)), asyncio.ensure_future(pieces.get())
        try:
            await asyncio.wait({first, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                self.queue.leave(job)
                raise (
                    RefusedError(499, "the asker has left")
                    if gone.done()
                    else too_late(self.limits)
                )
            if first.result() is job.answer and (error := job.answer.exception()):
                raise error
        finally:
            gone.cancel()
            first.cancel()
        return self._lines(job, first.result(), pieces)

    async def _lines(
        self, job: Job, piece: Any, pieces: "asyncio.Queue[Any]"
    ) -> AsyncIterator[bytes]:
        try:
            while piece is not job.answer:
                yield _line(piece)
                piece = await pieces.get()
            error = None if job.answer.cancelled() else job.answer.exception()
            yield _line({"done": True} if error is None else {"error": _in_a_line(error)})
        finally:
            if not job.answer.done():
                self.queue.leave(job)

    def gauges(self) -> dict[str, tuple[str, str, float]]:
        """What /metrics tells beside the requests."""
        queue = self.queue
        return {
            "regard_queue_length": ("gauge", "Places taken in the queue.", queue.length),
            "regard_queue_limit": ("gauge", "Places in the queue.", self.limits.queue),
            "regard_answered_total": ("counter", "Requests the models answered.", queue.served),
            "regard_batches_total": ("counter", "Calls of the models.", queue.batches),
            "regard_late_total": ("counter", "Requests past their deadline.", queue.late),
            "regard_left_total": ("counter", "Askers who left before the answer.", queue.left),
            "regard_restarts_total": (
                "counter",
                "Errors that the thread of the models recovered from.",
                queue.restarts,
            ),
            "regard_models_loaded": ("gauge", "Models in memory.", self.shelf.loaded),
            "regard_connections": ("gauge", "Open connections.", self.places.count),
            "regard_refused_unread_total": (
                "counter",
                "Requests refused unread, when the server was behind.",
                self.places.refused,
            ),
            "regard_resident_memory_bytes": ("gauge", "Memory of this process.", _resident()),
        }


def create_app(
    shelf: Shelf,
    limits: Limits | None = None,
    hosts: Collection[str] = LOCAL,
    places: Connections | None = None,
) -> Guard:
    """The server as an ASGI application: the API, the page, and the guard before both."""
    limits = limits or Limits()
    api = Api(shelf, limits, places or Connections(limits))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        trimming = asyncio.ensure_future(_trim())
        yield
        trimming.cancel()
        api.queue.close()
        await asyncio.to_thread(api.queue.join, limits.drain)

    app = FastAPI(
        title="regard", version=regard.__version__, lifespan=lifespan, docs_url=None,
        redoc_url=None, redirect_slashes=False, responses=REFUSALS,
        summary="Ask models trained by regard, and see what they look at.",
    )  # fmt: skip
    app.state.api = api
    _add_errors(app)
    _add_runs(app, api)
    _add_questions(app, api)
    add_page(app)
    return Guard(app, limits, api.metrics, hosts, api.queue.full)


def _add_runs(app: FastAPI, api: Api) -> None:
    @app.get("/runs", summary="The runs that are here, and the comparisons")
    async def runs() -> Any:
        found = await asyncio.to_thread(api.shelf.listed)
        return answered({"runs": found, "comparisons": list(api.shelf.comparisons)})

    @app.get("/comparison", summary="What a comparison found")
    async def comparison(name: Annotated[str, Query(max_length=4096)]) -> Any:
        return answered(await asyncio.to_thread(api.shelf.comparison, name))

    @app.get("/examples", summary="A few texts of a run's test split")
    async def examples(run: Annotated[str, Query(max_length=4096)]) -> Any:
        return answered({"run": run, "texts": await asyncio.to_thread(api.shelf.examples, run)})

    @app.get("/disagreements", summary="Test texts that one of two runs gets right, by the page")
    async def disagreements(
        request: Request, chosen: Annotated[AskedDisagreements, Query()]
    ) -> Any:
        both = api.shelf.check(chosen.a), api.shelf.check(chosen.b)
        given = (*both, chosen.filter, chosen.offset, chosen.limit)
        job = Job(given, lambda all_: [api.answers.disagreements(*all_[0])])
        return answered(await api.ask(request, job))

    @app.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Any:
        return Response(api.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/health", summary="Whether the server is well")
    async def health() -> Any:
        restarts = api.queue.restarts
        return answered({"well": True, "version": regard.__version__, "restarts": restarts})


def _add_questions(app: FastAPI, api: Api) -> None:
    limits, answers = api.limits, api.answers

    @app.post("/predict", summary="A run's answer to one text or several")
    async def predict(asked: AskedTexts, request: Request) -> Any:
        texts = _texts(asked, limits)
        name = api.shelf.check(asked.run)
        job = Job(texts, lambda given: answers.predict(name, given), ("predict", name), len(texts))
        found = await api.ask(request, job)
        if asked.text is not None:
            return answered({"run": name, "text": asked.text, **found[0]})
        rows = zip(texts, found, strict=True)
        return answered({"run": name, "predictions": [{"text": t, **row} for t, row in rows]})

    @app.post("/translate", summary="What a run that writes texts makes of one text or several")
    async def translate(asked: AskedTranslation, request: Request) -> Any:
        texts, best = _texts(asked, limits), asked.best
        if best > limits.best:
            raise over("best", limits.best, best)
        name = api.shelf.check(asked.run)
        job = Job(
            texts, lambda given: answers.translate(name, given, best), ("translate", name, best),
            len(texts),
        )  # fmt: skip
        found = await api.ask(request, job)
        if asked.text is not None:
            return answered({"run": name, "text": asked.text, **found[0]})
        rows = zip(texts, found, strict=True)
        return answered({"run": name, "translations": [{"text": t, **row} for t, row in rows]})

    @app.post("/generate", summary="A text token by token, as JSON lines (streamed)")
    async def generate(asked: AskedWriting, request: Request) -> Any:
        if asked.new_tokens > limits.new_tokens:
            raise over("new_tokens", limits.new_tokens, asked.new_tokens)
        name = api.shelf.check(asked.run)
        drawing = Drawing(asked.new_tokens, top_k=asked.top_k, top_p=asked.top_p, seed=asked.seed)
        job = Job(None, lambda _: answers.write(name, asked.text, drawing, asked.temperature))
        return StreamingResponse(await api.told(request, job), media_type="application/x-ndjson")

    @app.post("/attention", summary="Weights of attention as numbers: all layers, or one head")
    async def attention(asked: AskedAttention, request: Request) -> Any:
        name = api.shelf.check(asked.run)
        given = (name, asked.text, asked.tokens(limits), asked.layer, asked.head)
        found = await api.ask(request, Job(given, lambda all_: [answers.attention(*all_[0])]))
        return answered({"run": name, "text": asked.text, "layers": found})

    @app.post("/look", summary="An answer and its attention, packed for the page")
    async def look(asked: AskedLook, request: Request) -> Any:
        given = (api.shelf.check(asked.run), asked.text, asked.tokens(limits))

        def work(all_: list[Any]) -> list[bytes]:
            return [_encoded(answers.look(*all_[0]))]  # written down in the models' thread

        return Response(await api.ask(request, Job(given, work)), media_type="application/json")

    @app.post("/matrix", summary="One head of a look: float32 row scales, then a byte a weight")
    async def matrix(asked: AskedMatrix, request: Request) -> Any:
        name, written = api.shelf.check(asked.run), asked.tokens(limits)
        given = (name, asked.text, written, asked.layer, asked.head)
        found = await api.ask(request, Job(given, lambda all_: [answers.matrix(*all_[0])]))
        return Response(found, media_type="application/octet-stream")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return answered({"error": error.says}, error.status, error.headers)

    @app.exception_handler(RegardError)
    async def mistaken(request: Request, error: RegardError) -> Response:
        return answered({"error": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["loc"] == ("body",) and isinstance(first["input"], bytes):
            says = "body: not read as JSON; send the header content-type: application/json"
            return answered({"error": says}, 422)
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return answered({"error": f"{place[:200]}: {first['msg'].lower()}"}, 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return answered({"error": str(error.detail).lower()}, error.status_code, error.headers)


def answered(value: Any, status: int = 200, headers: Any = None) -> Response:
    """A JSON answer; half surrogate pairs, which no UTF-8 holds, become question marks."""
    return Response(_encoded(value), status, headers, "application/json")


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        errors="replace"
    )


def _line(value: Any) -> bytes:
    return _encoded(value) + b"\n"


def _in_a_line(error: BaseException) -> str:
    if isinstance(error, RefusedError):
        return error.says
    return str(error) if isinstance(error, RegardError) else "the server failed; its log says why"


def _texts(asked: AskedTexts, limits: Limits) -> list[str]:
    try:
        return asked.all(limits)
    except ValueError as error:
        raise RefusedError(422, str(error)) from None


async def _left(request: Request) -> None:
    """Wait until the asker has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _trim() -> None:
    """Hand what bursts of requests have left free back to the system, now and then."""
    while True:
        await asyncio.sleep(TRIM)
        await asyncio.to_thread(trim)


def _resident() -> float:
    """Bytes of memory that this process holds now; 0 where the system does not tell."""
    import os

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
