"""The server's paths, and what it tells clients about the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import msgspec

from app import __version__, words
from app.models.gguf import GgufHeader
from app.models.gguf_parser import Tokenizer
from app.models.hub.recommended import recommended
from app.models.measurements import up_to_rounding
from app.models.names import name_of_blob, stem_of
from app.protocol.commands import Tokenize
from app.protocol.events import PairLoaded, Tokenized
from app.server import guard, metrics
from app.server.answers import Answers, ask_aside, loaded_pair
from app.server.engines import Engine, client_name
from app.server.fields import TokenizeRequest, mended, parsed
from app.server.generation import FORMS, Finished, Generation
from app.server.guard import MAX_TOKENIZED_CHARACTERS, ApiError, Guard, Limits, invalid
from app.server.http import Handler, Head, Reply, StreamReply, json_reply
from app.server.metrics import OnEnded, Record, client_of


class ModelInfo:
    """Answers about one target. Never reveals paths."""

    def __init__(self, target: GgufHeader | None) -> None:
        """``None``: none is loaded."""
        self.id = (name_of_blob(target.path) or stem_of(target.path.name)) if target else "none"
        self._file = target.path.name if target else ""
        self._template = target.chat_template or "" if target else ""
        tokenizer = target.tokenizer if target else None
        self._bos = _text(tokenizer, tokenizer.bos_id) if tokenizer else ""
        self._eos = _text(tokenizer, tokenizer.eos_id) if tokenizer else ""
        self._created = int(time.time())

    def models(self, pair: PairLoaded | None) -> dict[str, Any]:
        """``/v1/models``."""
        return {"object": "list", "data": [self.model(pair)] if self._file else []}

    def model(self, pair: PairLoaded | None) -> dict[str, Any]:
        """``/v1/models/ID``; without details while nothing is loaded."""
        found: dict[str, Any] = {"id": self.id, "object": "model", "created": self._created, "owned_by": "slipstream"}
        if pair:
            found["max_model_len"] = pair.context_length
            found["meta"] = {
                "n_ctx": pair.context_length,
                "n_ctx_train": pair.target.training_context,
                "n_params": pair.target.parameters,
                "size": pair.target.size_bytes,
            }
        return found

    def props(self, pair: PairLoaded) -> dict[str, Any]:
        """llama-server's ``/props``, with just the file's name as its path."""
        return {
            "default_generation_settings": {"n_ctx": pair.context_length, "params": _parameters(pair)},
            "total_slots": 1,
            "model_alias": self.id,
            "model_path": self._file,
            "modalities": {"vision": pair.projector is not None, "audio": False},
            "chat_template": self._template if pair.template == "model" else "",
            "bos_token": self._bos,
            "eos_token": self._eos,
            "build_info": f"slipstream-{__version__}",
            "slipstream": {
                "draft": _name(pair),
                "mtp_head": pair.head_drafter == "mtp",
                "head": pair.head_drafter,
                "drafting_off": pair.drafting_off,
                "exact_unit": pair.exact_unit or None,
                "template": pair.template,
                "template_refused": pair.template_refused,
                "thinking": pair.thinking,
                "template_variables": pair.template_variables,
                "tool_format": pair.tool_format,
                "limits": _limits(pair),
            },
        }


def _limits(pair: PairLoaded) -> list[str]:
    """Sentences about the limits of this model, its chat template and this server."""
    found = ["One answer to a request, no echo or suffix of a prompt, and no files but text and images."]
    found += filter(None, [up_to_rounding(pair)])
    if pair.projector is None:
        found.append("It sees no images: no projector (mmproj) is loaded.")
    if pair.tool_format == "general":
        found.append("Its chat template has no form for tools that is known here: a general form is used.")
    if not pair.thinking:
        found.append("How much it thinks can't be chosen.")
    if pair.draft is None and not pair.has_head:
        found.append("There is no draft model or head: n-grams and grammars draft.")
    return found


def _name(pair: PairLoaded) -> str | None:
    return PurePath(pair.draft.path).stem if pair.draft else None


def _text(tokenizer: Tokenizer, token: int | None) -> str:
    if token is None or not 0 <= token < len(tokenizer.tokens):
        return ""
    return tokenizer.tokens[token].decode("utf-8", "replace")


def _parameters(pair: PairLoaded) -> dict[str, Any]:
    sampling = msgspec.to_builtins(recommended(pair).sampling)
    names = {"repetition_penalty": "repeat_penalty", "penalty_window": "repeat_last_n"}
    return {names.get(name, name): value for name, value in sampling.items()}


_MODEL = "/v1/models/"

Answering = Callable[[bytes, Finished], Awaitable[Reply | StreamReply]]


@dataclass(frozen=True)
class _Route:
    name: str
    method: str
    answer: Answering
    is_public: bool = False
    """Answered without a key."""
    is_polled: bool = False
    """Requested every few seconds, so it isn't recorded."""


class ModelService:
    """A `Service` for one engine and its model."""

    def __init__(
        self, engine: Engine, model: ModelInfo, guard: Guard, limits: Limits, on_ended: OnEnded = lambda _: None
    ) -> None:
        """``on_ended`` is called with the outcome of each request, except for polled paths."""
        self._on_ended = on_ended
        self._engine = engine
        self._model = model
        self._guard = guard
        self.metrics = metrics.Metrics()
        self._answers = Answers(engine, self.metrics)
        generation = Generation(engine, self._answers, model.id, limits.ping)
        get, post = _whole("GET"), "POST"
        routes = [
            *(get(path, self._health, is_public=True, is_polled=True) for path in ("/health", "/v1/health")),
            *(get(path, lambda: json_reply(model.models(engine.pair))) for path in ("/v1/models", "/models")),
            get("/props", lambda: json_reply(model.props(loaded_pair(engine)))),
            get("/metrics", self._metrics, is_polled=True),
            _Route("/tokenize", post, self._tokenize),
            *(_Route(path, post, partial(generation.answer, form)) for path, form in FORMS.items()),
            _Route("/v1/messages/count_tokens", post, lambda body, _: generation.count(body)),
        ]
        self._routes = {route.name: route for route in routes}
        self._one_model = get(f"{_MODEL}ID", lambda: json_reply(model.model(engine.pair)))

    # ------------------------------------------------------------ access

    def admit(self, head: Head) -> Handler:
        """See `app.server.http.Service`."""
        route = self._route(head.path)
        record = Record(route.name if route else "", client_of(head.headers), self._on_ended)
        try:
            self._guard.check_host(head.headers, head.local_address)
            has_origin = bool(self._guard.check_origin(head.headers))
            if head.method == "OPTIONS" and has_origin:
                return _preflight(head, route)
            found = self._checked(head, route)
        except ApiError as error:
            record.refused(error)
            raise
        if found.is_polled:
            return lambda body: found.answer(body, record.finished)
        return lambda body: self._answered(head, found, record, body)

    def origin_headers(self, head: Head) -> Mapping[str, str]:
        """See `app.server.http.Service`."""
        try:
            self._guard.check_host(head.headers, head.local_address)
            return self._guard.check_origin(head.headers)
        except ApiError:
            return {}

    def _checked(self, head: Head, route: _Route | None) -> _Route:
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
        return route

    def _route(self, path: str) -> _Route | None:
        if unquote(path) == f"{_MODEL}{self._model.id}":
            return self._one_model
        return self._routes.get(path)

    async def _answered(self, head: Head, route: _Route, record: Record, body: bytes) -> Reply | StreamReply:
        client_name.set(client_of(head.headers))
        try:
            reply = await route.answer(mended(body), record.finished)
        except ApiError as error:
            record.refused(error)
            raise
        except asyncio.CancelledError:
            record.left()
            raise
        if isinstance(reply, StreamReply):
            reply.resources.callback(record.left)
        else:
            record.answered()
        return reply

    # ------------------------------------------------------------ short answers

    def _health(self) -> Reply:
        loaded_pair(self._engine)
        return json_reply({"status": "ok"})

    def _metrics(self) -> Reply:
        return Reply(self.metrics.text(self._model.id).encode(), content_type=metrics.CONTENT_TYPE)

    async def _tokenize(self, body: bytes, _: Finished) -> Reply:
        request = parsed(body, TokenizeRequest)
        text = request.prompt if request.content is None else request.content
        if text is None:
            raise invalid("The request has no content.")
        if len(text) > MAX_TOKENIZED_CHARACTERS:
            raise invalid(f"The content is longer than {words.number(MAX_TOKENIZED_CHARACTERS)} characters.")
        question = Tokenize(
            request=0, text=text, special=request.parse_special is not False, bos=bool(request.add_special)
        )
        pair = loaded_pair(self._engine)
        found = await ask_aside(self._engine, question, Tokenized)
        tokens: list[object] = list(found.tokens)
        if request.with_pieces:
            pairs = zip(found.tokens, found.pieces, strict=True)
            tokens = [{"id": token, "piece": _piece(piece)} for token, piece in pairs]
        return json_reply({"tokens": tokens, "count": len(tokens), "max_model_len": pair.context_length})


def _whole(method: str) -> Callable[..., _Route]:
    """Makes routes from functions that answer immediately."""

    def route(name: str, answer: Callable[[], Reply], *, is_public: bool = False, is_polled: bool = False) -> _Route:
        async def answered(_body: bytes, _finished: Finished) -> Reply:
            return answer()

        return _Route(name, method, answered, is_public, is_polled)

    return route


def _preflight(head: Head, route: _Route | None) -> Handler:
    headers = guard.preflight_headers(head.headers, route.method if route else "GET, POST")

    async def answer(_: bytes) -> Reply:
        return Reply(b"", 204, headers=headers)

    return answer


def _piece(piece: bytes) -> str | list[int]:
    """Text, or like llama-server, a list of bytes if it isn't valid UTF-8."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
