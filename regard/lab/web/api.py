"""The JSON API. Requests to models go through a queue to a single worker thread."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException

import regard
from regard.core.errors import RegardError
from regard.core.memory import peak_mb, trim
from regard.core.reading import problem
from regard.lab.data.examples import as_json
from regard.lab.tasks.writing.streaming import Drawing
from regard.lab.web.answers import Answers
from regard.lab.web.connections import Connections
from regard.lab.web.guard import LOCAL, Guard
from regard.lab.web.interventions import add_interventions
from regard.lab.web.limits import Limits
from regard.lab.web.metrics import Metrics
from regard.lab.web.page import add_page
from regard.lab.web.queue import Job, Queue
from regard.lab.web.refusal import RefusedError, over, too_late
from regard.lab.web.registry import Registry
from regard.lab.web.requests import (
    AttentionRequest,
    DisagreementsRequest,
    LookRequest,
    MatrixRequest,
    TextsRequest,
    TranslationRequest,
    WritingRequest,
)

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": description}
    for status, description in {
        400: "Bad request; the error explains it in one line.",
        413: "The body exceeds its limit.",
        415: "The body is compressed.",
        422: "A field is missing, unknown or over a limit, which the error names.",
        503: "The queue is full; retry after the seconds in Retry-After.",
        504: "No answer before the deadline.",
    }.items()
}
TRIM = 30.0  # seconds between two returns of free memory to the system


class Api:
    """The state of the application: models, queue and metrics."""

    def __init__(self, registry: Registry, limits: Limits, places: Connections) -> None:
        self.registry, self.limits, self.places = registry, limits, places
        self.queue, self.answers = Queue(limits), Answers(registry, limits)
        self.places.full = self.queue.full
        self.metrics = Metrics(self.gauges)

    async def ask(self, request: Request, job: Job) -> Any:
        """Queue a job and wait for its answer. A client that disconnects frees its slot.

        Raises: 503 if the queue is full, 504 if the deadline has passed.
        """
        remaining = self._put(request, job)
        answer = asyncio.wrap_future(job.answer)
        await self._until(answer, request, job, remaining)
        return answer.result()

    async def call(self, request: Request, work: Callable[..., Any], *arguments: Any) -> Any:
        """Queue a call that is not batched with others, and wait for its result, as `ask`."""
        return await self.ask(request, Job(None, lambda _: [work(*arguments)]))

    async def _until(
        self, first: "asyncio.Future[Any]", request: Request, job: Job, remaining: float
    ) -> None:
        """Wait until a job's answer or first piece is done. Raises: 499, 504."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {first, gone}, timeout=remaining, return_when=asyncio.FIRST_COMPLETED
            )
            if first.done() and (job.on_piece or time.monotonic() < job.deadline):
                return
            if gone.done():
                raise RefusedError(499, "the client disconnected")
            raise too_late(self.limits)
        finally:
            gone.cancel()
            if not first.done():
                self.queue.leave(job)
                first.cancel()
            elif not first.cancelled():
                first.exception()  # retrieved, so that asyncio does not log it

    def _put(self, request: Request, job: Job) -> float:
        """Queue a job and return the seconds until its deadline. Raises: 503, the queue is full."""
        now = time.monotonic()
        job.deadline = request.scope.get("arrived", now) + self.limits.deadline
        self.queue.put(job)
        return max(job.deadline - now, 0.0)

    async def stream(self, request: Request, job: Job) -> AsyncIterator[bytes]:
        """Stream the pieces of an answer as JSON lines; the last line reports success or the error.

        Errors before the first piece are raised as by `ask`; later ones become a line.
        """
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(piece: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        job.on_piece = put
        job.answer.add_done_callback(put)
        remaining = self._put(request, job)
        first = asyncio.ensure_future(pieces.get())
        await self._until(first, request, job, remaining)
        if first.result() is job.answer and (error := job.answer.exception()):
            raise error
        return self._lines(job, first.result(), pieces)

    async def _lines(
        self, job: Job, piece: Any, pieces: "asyncio.Queue[Any]"
    ) -> AsyncIterator[bytes]:
        try:
            while piece is not job.answer:
                yield _line(piece)
                piece = await pieces.get()
            error = None if job.answer.cancelled() else job.answer.exception()
            yield _line({"done": True} if error is None else {"error": _message(error)})
        finally:
            if not job.answer.done():
                self.queue.leave(job)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the metrics of /metrics other than those of requests."""
        queue, places = self.queue, self.places
        return {
            "regard_queue_length": ("Requests queued or running.", queue.length),
            "regard_queue_limit": ("Maximum length of the queue.", self.limits.queue),
            "regard_answered_total": ("Requests answered by models.", queue.served),
            "regard_batches_total": ("Calls of models.", queue.batches),
            "regard_late_total": ("Requests that missed their deadline.", queue.late),
            "regard_left_total": ("Clients that disconnected before the answer.", queue.left),
            "regard_restarts_total": (
                "Errors that the model thread recovered from.",
                queue.restarts,
            ),
            "regard_models_loaded": ("Models in memory.", self.registry.loaded),
            "regard_connections": ("Open connections.", places.count),
            "regard_refused_unread_total": (
                "Requests refused unread because the queue was full or the server overloaded.",
                places.refused,
            ),
            "regard_resident_memory_bytes": ("Resident memory of this process.", _resident()),
            "regard_peak_memory_bytes": ("Peak memory of this process.", peak_mb() * 1e6),
        }


def create_app(
    registry: Registry,
    limits: Limits | None = None,
    hosts: Collection[str] = LOCAL,
    places: Connections | None = None,
) -> Guard:
    """Return the ASGI application: the API and the page behind the guard."""
    limits = limits or Limits()
    api = Api(registry, limits, places or Connections(limits))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        trimming = asyncio.ensure_future(_trim())
        yield
        trimming.cancel()
        api.queue.close()
        await asyncio.to_thread(api.queue.join, limits.drain)

    app = FastAPI(
        title="regard", version=regard.__version__, lifespan=lifespan, docs_url=None,
        redoc_url=None, redirect_slashes=False, responses=REFUSALS, servers=[{"url": "."}],
        summary="Query models trained by regard and inspect their attention.",
    )  # fmt: skip
    app.state.api = api
    _add_errors(app)
    _add_runs(app, api)
    _add_questions(app, api)
    add_interventions(app, api)
    add_page(app)
    return Guard(app, limits, api.metrics, hosts)


def _add_runs(app: FastAPI, api: Api) -> None:
    @app.get("/runs", summary="List runs and comparisons")
    async def runs() -> Any:
        rows = await asyncio.to_thread(api.registry.listed)
        return answered({"runs": rows, "comparisons": list(api.registry.comparisons)})

    @app.get("/comparison", summary="Results of a comparison")
    async def comparison(name: Annotated[str, Query(max_length=4096)]) -> Any:
        return answered(await asyncio.to_thread(api.registry.comparison, name))

    @app.get("/examples", summary="Example texts and score of a run's test split")
    async def examples(run: Annotated[str, Query(max_length=4096)]) -> Any:
        labels = await asyncio.to_thread(api.registry.examples, run)
        tested = await asyncio.to_thread(api.registry.tested, run)
        inputs = {"inputs": [as_json(text) for text in labels]}
        return answered({"run": run, "texts": list(labels), **inputs, "labels": labels, **tested})

    @app.get("/disagreements", summary="Test texts that only one of two runs gets right, paginated")
    async def disagreements(
        request: Request, query: Annotated[DisagreementsRequest, Query()]
    ) -> Any:
        for name in (query.a, query.b):
            api.registry.check(name)
        return answered(await api.call(request, api.answers.disagreements, query))

    @app.get(
        "/metrics", summary="Metrics in Prometheus' text format", response_class=PlainTextResponse
    )
    async def metrics() -> Any:
        return Response(api.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/health", summary="Health of the server")
    async def health() -> Any:
        restarts = api.queue.restarts
        return answered({"well": True, "version": regard.__version__, "restarts": restarts})


def _add_questions(app: FastAPI, api: Api) -> None:
    limits, answers = api.limits, api.answers

    @app.post("/predict", summary="Predict for one text or several")
    async def predict(query: TextsRequest, request: Request) -> Any:
        texts = query.all(limits)
        name = api.registry.check(query.run)
        job = Job(texts, lambda batch: answers.predict(name, batch), ("predict", name), len(texts))
        results = await api.ask(request, job)
        if query.text is not None:
            return answered({"run": name, **as_json(texts[0]), **results[0]})
        rows = [{**as_json(t), **row} for t, row in zip(texts, results, strict=True)]
        return answered({"run": name, "predictions": rows})

    @app.post("/translate", summary="Generate the output text for one text or several")
    async def translate(query: TranslationRequest, request: Request) -> Any:
        texts, best = query.all(limits), query.best
        if best > limits.best:
            raise over("best", limits.best, best)
        name = api.registry.check(query.run)
        job = Job(
            texts, lambda batch: answers.translate(name, batch, best), ("translate", name, best),
            len(texts),
        )  # fmt: skip
        results = await api.ask(request, job)
        if query.text is not None:
            return answered({"run": name, "text": query.text, **results[0]})
        rows = zip(texts, results, strict=True)
        return answered({"run": name, "translations": [{"text": t, **row} for t, row in rows]})

    @app.post("/generate", summary="Generate a text token by token, streamed as JSON lines")
    async def generate(query: WritingRequest, request: Request) -> Any:
        if query.new_tokens > limits.new_tokens:
            raise over("new_tokens", limits.new_tokens, query.new_tokens)
        name = api.registry.check(query.run)
        drawing = Drawing(query.new_tokens, top_k=query.top_k, top_p=query.top_p, seed=query.seed)
        job = Job(None, lambda _: answers.write(name, query.text, drawing, query.temperature))
        lines = await api.stream(request, job)
        unbuffered = {"x-accel-buffering": "no"}  # nginx else holds the tokens back
        return StreamingResponse(lines, headers=unbuffered, media_type="application/x-ndjson")

    @app.post("/attention", summary="Attention weights as numbers: all layers or one head")
    async def attention(query: AttentionRequest, request: Request) -> Any:
        name = api.registry.check(query.run)
        arguments = (name, query.input, query.tokens(limits), query.layer, query.head)
        layers = await api.call(request, answers.attention, *arguments)
        return answered({"run": name, **as_json(query.input), "layers": layers})

    @app.post("/look", summary="An answer and its attention, packed for the page")
    async def look(query: LookRequest, request: Request) -> Any:
        name, written = api.registry.check(query.run), query.tokens(limits)

        def work() -> bytes:
            return _encoded(answers.look(name, query.input, written))  # in the models' thread

        return Response(await api.call(request, work), media_type="application/json")

    @app.post("/matrix", summary="One head as bytes: float32 row scales, then one byte per weight")
    async def matrix(query: MatrixRequest, request: Request) -> Any:
        name, written = api.registry.check(query.run), query.tokens(limits)
        arguments = (name, query.input, written, query.layer, query.head)
        packed = await api.call(request, answers.matrix, *arguments)
        return Response(packed, media_type="application/octet-stream")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return answered({"error": error.message}, error.status, error.headers)

    @app.exception_handler(RegardError)
    async def bad_request(request: Request, error: RegardError) -> Response:
        return answered({"error": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["loc"] == ("body",) and isinstance(first["input"], bytes):
            message = "body: not read as JSON; send the header content-type: application/json"
            return answered({"error": message}, 422)
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return answered({"error": f"{place[:200]}: {problem(first)}"}, 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if headers.get("Allow") == "GET":
            headers["Allow"] = "GET, HEAD"  # the guard answers HEAD
        return answered({"error": str(error.detail).lower()}, error.status_code, headers)


def answered(value: Any, status: int = 200, headers: Any = None) -> Response:
    """Return a JSON response; lone surrogates, invalid in UTF-8, become question marks."""
    return Response(_encoded(value), status, headers, "application/json")


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        errors="replace"
    )


def _line(value: Any) -> bytes:
    return _encoded(value) + b"\n"


def _message(error: BaseException) -> str:
    if isinstance(error, RefusedError | RegardError):
        return str(error)
    return "internal server error; see the server's log"


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _trim() -> None:
    """Return memory freed after bursts of requests to the system, periodically."""
    while True:
        await asyncio.sleep(TRIM)
        await asyncio.to_thread(trim)


def _resident() -> float:
    """Return the resident memory of this process in bytes, or 0 if it is unknown."""
    import os

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
