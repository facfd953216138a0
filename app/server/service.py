"""What is answered at which path, and who gets it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from app.errors import KnownError
from app.protocol.commands import Tokenize
from app.protocol.events import GenerationFinished
from app.server import guard, metrics
from app.server.answers import Answers, unavailable
from app.server.engine import Engine
from app.server.errors import ApiError, invalid
from app.server.fields import TokenizeRequest, parsed
from app.server.generation import Finished, Generation, loaded_pair
from app.server.guard import Guard
from app.server.http import Handler, Head, Reply, StreamReply, json_reply
from app.server.limits import MAX_TOKENIZED_CHARACTERS, Limits
from app.server.model_info import ModelInfo

_log = logging.getLogger("slipstream.server")
_CLIENT = re.compile(rb"[A-Za-z0-9._+-]{1,40}(?:/[A-Za-z0-9._+-]{1,20})?")
_MODEL = "/v1/models/"

Answering = Callable[[bytes, Finished], Awaitable[Reply | StreamReply]]


@dataclass(frozen=True)
class _Route:
    name: str
    method: str
    answer: Answering
    is_public: bool = False
    """Answered without a key."""


class ModelService:
    """Answers for one engine and its model; see `app.server.http.Service`."""

    def __init__(self, engine: Engine, model: ModelInfo, guard: Guard, limits: Limits) -> None:
        self._engine = engine
        self._model = model
        self._guard = guard
        self.metrics = metrics.Metrics()
        self._answers = Answers(engine, self.metrics)
        generation = Generation(engine, self._answers, limits.ping)
        get, post = _whole("GET"), "POST"
        routes = [
            *(get(path, self._health, is_public=True) for path in ("/health", "/v1/health")),
            *(get(path, self._models) for path in ("/v1/models", "/models")),
            get("/props", self._props),
            get("/metrics", self._metrics),
            _Route("/tokenize", post, self._tokenize),
            *(
                _Route(path, post, lambda body, finished: generation.chat(body, model.id, finished))
                for path in ("/v1/chat/completions", "/chat/completions")
            ),
            _Route("/v1/completions", post, lambda body, finished: generation.completion(body, model.id, finished)),
            _Route("/v1/responses", post, lambda body, finished: generation.responses(body, model.id, finished)),
            _Route("/v1/messages", post, lambda body, finished: generation.messages(body, model.id, finished)),
            _Route("/v1/messages/count_tokens", post, lambda body, _: generation.count(body)),
        ]
        self._routes = {route.name: route for route in routes}
        self._one_model = get(f"{_MODEL}ID", lambda: json_reply(model.model(engine.pair)))

    # ------------------------------------------------------------ who may ask

    def admit(self, head: Head) -> Handler:
        """See `app.server.http.Service`."""
        self._guard.check_host(head.headers, head.local_address)
        has_origin = bool(self._guard.check_origin(head.headers))
        route = self._route(head.path)
        if head.method == "OPTIONS" and has_origin:
            return _preflight(head, route)
        try:
            self._check(head, route)
        except ApiError as error:
            _log.info("%s %s: %d", route.name if route else "an unknown path", _client(head), error.status)
            raise
        assert route is not None
        return lambda body: self._answered(head, route, body)

    def origin_headers(self, head: Head) -> Mapping[str, str]:
        """See `app.server.http.Service`."""
        try:
            self._guard.check_host(head.headers, head.local_address)
            return self._guard.check_origin(head.headers)
        except ApiError:
            return {}

    def _check(self, head: Head, route: _Route | None) -> None:
        if route is None or not route.is_public:
            self._guard.check_key(head.headers)
        if route is None:
            raise ApiError("not_found_error", "There is nothing at this path.")
        if head.method != route.method and (head.method, route.method) != ("HEAD", "GET"):
            message = f"This path takes {route.method}."
            raise ApiError("invalid_request_error", message, status=405, headers={"Allow": f"{route.method}, OPTIONS"})
        if head.is_surplus:
            raise self._answers.too_many()
        if route.method == "POST":
            guard.check_json(head.headers)

    def _route(self, path: str) -> _Route | None:
        if path == f"{_MODEL}{self._model.id}":
            return self._one_model
        return self._routes.get(path)

    async def _answered(self, head: Head, route: _Route, body: bytes) -> Reply | StreamReply:
        """Answer, and log how that went: never what was said."""
        begun = time.monotonic()

        def log_answer(event: GenerationFinished) -> None:
            figures = event.figures
            _log.info(
                "%s %s: %d + %d tokens in %.1f s, %s",
                route.name,
                _client(head),
                figures.prompt_tokens,
                figures.completion_tokens,
                time.monotonic() - begun,
                event.finish_reason,
            )

        try:
            return await route.answer(body, log_answer)
        except ApiError as error:
            _log.info("%s %s: %d %s", route.name, _client(head), error.status, error.kind)
            raise

    # ------------------------------------------------------------ short answers

    def _health(self) -> Reply:
        loaded_pair(self._engine)
        return json_reply({"status": "ok"})

    def _models(self) -> Reply:
        return json_reply(self._model.models(self._engine.pair))

    def _props(self) -> Reply:
        return json_reply(self._model.props(loaded_pair(self._engine)))

    def _metrics(self) -> Reply:
        return Reply(self.metrics.text(self._model.id).encode(), content_type=metrics.CONTENT_TYPE)

    async def _tokenize(self, body: bytes, _: Finished) -> Reply:
        request = parsed(body, TokenizeRequest)
        text = request.prompt if request.content is None else request.content
        if text is None:
            raise invalid("The request has no content.")
        if len(text) > MAX_TOKENIZED_CHARACTERS:
            raise invalid(f"The content is longer than {MAX_TOKENIZED_CHARACTERS:,} characters.")
        question = Tokenize(
            request=0, text=text, special=request.parse_special is not False, bos=bool(request.add_special)
        )
        pair = loaded_pair(self._engine)
        try:
            found = await self._engine.tokenize(question)
        except KnownError:
            raise unavailable() from None
        tokens: list[object] = list(found.tokens)
        if request.with_pieces:
            pairs = zip(found.tokens, found.pieces, strict=True)
            tokens = [{"id": token, "piece": _piece(piece)} for token, piece in pairs]
        return json_reply({"tokens": tokens, "count": len(tokens), "max_model_len": pair.context_length})


def _whole(method: str) -> Callable[..., _Route]:
    """Makes routes of functions that answer at once."""

    def route(name: str, answer: Callable[[], Reply], *, is_public: bool = False) -> _Route:
        async def answered(_body: bytes, _finished: Finished) -> Reply:
            return answer()

        return _Route(name, method, answered, is_public)

    return route


def _preflight(head: Head, route: _Route | None) -> Handler:
    headers = guard.preflight_headers(head.headers, route.method if route else "GET, POST")

    async def answer(_: bytes) -> Reply:
        return Reply(b"", 204, headers=headers)

    return answer


def _piece(piece: bytes) -> str | list[int]:
    """Bytes that are no text go as numbers, as llama-server does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _client(head: Head) -> str:
    """The program that asks, by its own name."""
    agent = next((value for name, value in head.headers if name == b"user-agent"), b"")
    match = _CLIENT.match(agent)
    return match.group().decode() if match else "?"
