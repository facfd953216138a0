"""From an address to a usable model: identifies the server, and knows each kind's dialect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app import system
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import FormatKind, Sampling
from app.protocol.remote import (
    MAX_SERVED_MODELS,
    SERVER_NAMES,
    Connect,
    FiguresFrom,
    FindServers,
    ModelState,
    Probe,
    RemoteModel,
    ServedModel,
    Server,
    ServerKind,
    ServerProbed,
    ServersFound,
)
from app.remote import figures as counters
from app.remote import http as address
from app.remote.http import Answer, Http, Limits, RemoteError, items, mapping, number, refusal, text
from app.words import printable

# Servers are identified by their answers, step by step, never by host or port (docs/remote.md).

_OWNERS: dict[str, ServerKind] = {
    "slipstream": "slipstream",
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt_llm",
    "library": "ollama",
}
_VERSIONS: dict[ServerKind, tuple[str, ...]] = {
    "vllm": ("/version",),
    "sglang": ("/server_info", "/get_server_info"),
    "tensorrt_llm": ("/version",),
    "ollama": ("/api/version",),
}
_STATES: dict[str, ModelState] = {
    "unloaded": "unloaded",
    "not-loaded": "unloaded",
    "loading": "loading",
    "loaded": "loaded",
    "sleeping": "sleeping",
    "downloading": "downloading",
}
_MOST_NAME = 512


async def detect(http: Http, seconds: float = 0.0) -> tuple[Server, bool]:
    """Identify a server and list its models. ``seconds``: the limit for each request; 0: the usual one.

    Also returns whether it has LM Studio's older API (``/api/v0``), which has figures. A server that refuses the key is
    returned without any details. Raises `RemoteError`.
    """
    listed = await http.get("/v1/models", seconds)
    if listed.status in (401, 403):
        kind: ServerKind = "llama.cpp" if _is_llama_server(listed) else "openai"
        return _server(http, kind, needs_key=True), False
    if listed.status == 503:
        raise refusal(listed.status, listed.body, http.address.host, listed.headers.get("Retry-After", ""))
    if _is_llama_server(listed) and listed.status == 200:
        return _server(http, "llama.cpp", _models(listed.json)), False
    found = [mapping(one) for one in items(mapping(listed.json).get("data"))] if listed.status == 200 else []
    for owner, kind in _OWNERS.items():
        if any(text(one.get("owned_by")) == owner for one in found):
            return await _complete(http, kind, _models(listed.json), seconds), False
    return await _of_others(http, listed, seconds)


async def _of_others(http: Http, listed: Answer, seconds: float) -> tuple[Server, bool]:
    """Identify servers that ``/v1/models`` doesn't tell apart."""
    if b"Ollama is running" in (await http.get("/", seconds)).body[:1000]:
        return await _complete(http, "ollama", _models(listed.json), seconds), False
    older = mapping((await http.get("/api/v0/models", seconds)).json)
    if any("compatibility_type" in mapping(one) for one in items(older.get("data"))):
        return _server(http, "lm_studio", _models(older)), True
    newer = mapping((await http.get("/api/v1/models", seconds)).json)
    if any("key" in mapping(one) for one in items(newer.get("models"))):
        return _server(http, "lm_studio", _lm_studio_models(newer)), False
    info = mapping((await http.get("/info", seconds)).json)
    if text(info.get("router")) == "text-generation-router":
        return _tgi(http, info), False
    if listed.status == 200 and isinstance(listed.json, dict) and isinstance(listed.json.get("data"), list):
        return _server(http, "openai", _models(listed.json)), False
    if listed.status >= 400 and listed.status != 404:
        raise refusal(listed.status, listed.body, http.address.host, listed.headers.get("Retry-After", ""))
    raise RemoteError(
        "not_a_server",
        f"{http.address.host} answers, but not like a server for language models. Check the address and the port.",
    )


def _is_llama_server(answer: Answer) -> bool:
    return answer.headers.get("Server", "") == "llama.cpp"


async def _complete(http: Http, kind: ServerKind, models: list[ServedModel], seconds: float) -> Server:
    """The server with its version, and with details of the models from its own API."""
    version = ""
    for path in _VERSIONS.get(kind, ()):
        version = text(mapping((await http.get(path, seconds)).json).get("version"))
        if version:
            break
    if kind == "ollama":
        running = mapping((await http.get("/api/ps", seconds)).json)
        contexts = {
            text(one.get("name")): number(one.get("context_length")) or 0
            for one in map(mapping, items(running.get("models")))
        }
        models = [
            ServedModel(
                id=one.id, state="loaded" if one.id in contexts else "unloaded", context_length=contexts.get(one.id, 0)
            )
            for one in models
        ]
    return _server(http, kind, models, version)


def _server(
    http: Http, kind: ServerKind, models: list[ServedModel] | None = None, version: str = "", *, needs_key: bool = False
) -> Server:
    return Server(
        kind=kind,
        version=printable(version),
        address=http.address.root,
        models=models or [],
        needs_key=needs_key,
        is_loopback=http.address.is_loopback,
        is_encrypted=http.address.is_encrypted,
    )


def _models(listed: object) -> list[ServedModel]:
    """The models of ``/v1/models``, llama-server's ``/models`` and LM Studio's ``/api/v0/models``."""
    found = []
    for one in map(mapping, items(mapping(listed).get("data"))[:MAX_SERVED_MODELS]):
        name = text(one.get("id"))
        if not name or len(name) > _MOST_NAME or text(one.get("type")) == "embeddings":
            continue
        state = text(mapping(one.get("status")).get("value")) or text(one.get("state"))
        context = (
            number(mapping(one.get("meta")).get("n_ctx"))
            or number(one.get("max_model_len"))
            or number(one.get("loaded_context_length"))
            or number(one.get("max_context_length"))
        )
        found.append(ServedModel(id=name, state=_STATES.get(state, ""), context_length=context or 0))
    return found


def _lm_studio_models(listed: dict[str, Any]) -> list[ServedModel]:
    found = []
    for one in map(mapping, items(listed.get("models"))[:MAX_SERVED_MODELS]):
        name = text(one.get("key"))
        if not name or len(name) > _MOST_NAME or text(one.get("type")) == "embedding":
            continue
        loaded = items(one.get("loaded_instances"))
        context = number(mapping(mapping(loaded[0]).get("config")).get("context_length")) if loaded else None
        context = context or number(one.get("max_context_length"))
        found.append(ServedModel(id=name, state="loaded" if loaded else "unloaded", context_length=context or 0))
    return found


def _tgi(http: Http, info: dict[str, Any]) -> Server:
    context = number(info.get("max_total_tokens")) or number(info.get("max_input_tokens"))
    name = text(info.get("model_id"))[:_MOST_NAME] or "tgi"
    models = [ServedModel(id=name, state="loaded", context_length=context or 0)]
    return _server(http, "tgi", models, text(info.get("version")))


# What each kind of server supports. Sources and versions are in benchmarks/notes/remote.md.

_BASIC = {name: name for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty")}
_VLLM = {**_BASIC, "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty"}
_LLAMA = {
    **_BASIC,
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
    "penalty_window": "repeat_last_n",
}
_SAMPLING = tuple(_LLAMA)
_LIMITS = {"thinking_budget": "thinking_budget_tokens"}
_JSON: tuple[FormatKind, ...] = ("json_object", "json_schema")


@dataclass(frozen=True)
class Dialect:
    """What one kind of server supports."""

    kind: ServerKind
    sampling: dict[str, str]
    """The fields of `Sampling` that it supports, with its names for them."""
    formats: tuple[FormatKind, ...] = ()
    levels: tuple[str, ...] = ()
    """Thinking levels that can be requested of any model."""
    limits: dict[str, str] = field(default_factory=dict)
    """The limits in `PerChat` that it supports besides ``max_tokens``, with its names for them."""
    can_continue: bool = False
    all_top_k: int = 0
    """The value of ``top_k`` for all tokens."""
    stream_options: dict[str, bool] = field(default_factory=lambda: {"include_usage": True})
    extras: dict[str, bool] = field(default_factory=dict)
    """Request fields that make it send more figures."""
    figures: FiguresFrom = "none"
    note: str = ""
    """For `RemoteModel.figures_note`."""

    @property
    def name(self) -> str:
        return SERVER_NAMES[self.kind]

    def refused(self) -> dict[str, str]:
        """For `RemoteModel.refused`, apart from what depends on the model."""
        found = {one: f"{self.name} doesn't have this setting." for one in _SAMPLING if one not in self.sampling}
        if "thinking_budget" not in self.limits:
            found["thinking_budget"] = f"{self.name} can't limit thinking."
        if not self.formats:
            found["answer_format"] = f"{self.name} can't make answers follow a format."
        if self.kind != "ollama":
            found["drafter"] = f"How {self.name} drafts is decided when it is started."
        found["overflow"] = f"What happens to a chat that is too long is up to {self.name}."
        found["stop_thinking"] = f"{self.name} can't be told to stop thinking."
        return found


_LIVE = {"timings_per_token": True, "return_progress": True}
_LLAMA_NOTE = (
    "llama-server sends its counts of drafted and accepted tokens with every token. If nothing is drafted, start it "
    "with --spec-type, for example draft-simple (a draft model) or draft-eagle3 (a head) with --spec-draft-model FILE, "
    "or ngram-simple."
)
VLLM_WITHOUT_DRAFTING = "This vLLM drafts nothing. To make it draft, start it with --speculative-config."
_DIALECTS = (
    Dialect(
        "slipstream",
        _LLAMA,
        formats=(*_JSON, "gbnf"),
        limits=_LIMITS,
        can_continue=True,
        extras=_LIVE,
        figures="live",
        note="The other Slipstream sends its own counts with every answer.",
    ),
    Dialect(
        "llama.cpp",
        _LLAMA,
        formats=(*_JSON, "gbnf"),
        limits=_LIMITS,
        can_continue=True,
        extras=_LIVE,
        figures="live",
        note=_LLAMA_NOTE,
    ),
    Dialect(
        "vllm",
        _VLLM,
        formats=_JSON,
        levels=("off", "on", "low", "medium", "high"),
        can_continue=True,
        all_top_k=-1,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        figures="counters",
        note="vLLM sends figures with each answer if it was started with --per-request-spec-decode-metrics summary "
        "(0.29 or later). Without that, its counters before and after an answer are compared, which also count what "
        "others ask it.",
    ),
    Dialect(
        "sglang",
        _VLLM,
        formats=_JSON,
        levels=("off", "on"),
        can_continue=True,
        all_top_k=-1,
        extras={"return_spec_tokens_details": True},
        figures="reply",
        note="SGLang sends figures at the end of each answer if it was started with --speculative-algorithm.",
    ),
    Dialect(
        "tensorrt_llm",
        _VLLM,
        formats=_JSON,
        levels=("off", "on"),
        figures="reply",
        note="TensorRT-LLM sends the mean number of tokens per pass with each answer. Newer versions send all figures "
        "if per_request_spec_decode_stats: true is in the file given with --extra_llm_api_options.",
    ),
    Dialect(
        "tgi",
        _BASIC,
        figures="counters",
        note="TGI only has counters for all its answers together. Slipstream compares them before and after an "
        "answer, so they also count other requests.",
    ),
    Dialect(
        "ollama",
        _LLAMA,
        formats=_JSON,
        note="Ollama can draft, but doesn't report its counts. Slipstream can ask for an answer without drafting to "
        "compare the speed.",
    ),
    Dialect(
        "lm_studio",
        {**_BASIC, "top_k": "top_k", "repetition_penalty": "repeat_penalty"},
        formats=("json_schema",),
        figures="reply",
        note="LM Studio sends figures at the end of each answer. It drafts if a draft model is chosen in its settings "
        "of the model.",
    ),
    Dialect(
        "openai", _BASIC, formats=_JSON, note="This server gives no figures about drafting. Speed is measured here."
    ),
)
DIALECTS: dict[ServerKind, Dialect] = {one.kind: one for one in _DIALECTS}


_LLAMA_KINDS = ("llama.cpp", "slipstream")
_EFFORTS = ("low", "medium", "high")


@dataclass
class Session:
    """A model on a server."""

    http: Http
    dialect: Dialect
    model: str
    pair: PairLoaded
    has_stats: bool = False
    """It has LM Studio's API with figures."""
    has_figures: bool = False
    """An answer came with drafting figures, so counters aren't needed."""

    @property
    def remote(self) -> RemoteModel:
        assert self.pair.remote is not None
        return self.pair.remote


@dataclass
class _Abilities:
    """What the server reports about one model."""

    version: str = ""
    context_length: int = 0
    levels: list[str] = field(default_factory=list)
    may_think: bool = False
    sees: bool = False
    sampling: dict[str, Any] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    is_drafting: bool | None = None
    """``None``: unknown."""


async def connect(command: Connect, limits: Limits, on_loading: Callable[[], None]) -> Session:
    """Use a model. ``on_loading`` is called repeatedly while the server loads it. Raises `RemoteError`."""
    begun = time.monotonic()
    place = address.parse(command.address)
    http = Http(place, command.key, limits, loopback_only=command.loopback_only)
    try:
        server, has_stats = await _detected(http, on_loading)
        if server.needs_key:
            raise RemoteError("key", needs_key(place.host, has_key=bool(command.key)))
        model = chosen(server, command.model)
        if server.kind == "llama.cpp":
            model = await _load_on_router(http, model, on_loading)
            server = _with_model(server, model)
        abilities = await _abilities(http, server.kind, model, on_loading)
        pair = _pair(command.request, server, model, abilities, has_stats=has_stats)
        pair = msgspec.structs.replace(pair, load_seconds=time.monotonic() - begun)
        return Session(http, DIALECTS[server.kind], model.id, pair, has_stats)
    except BaseException:
        await http.close()
        raise


def needs_key(host: str, *, has_key: bool) -> str:
    """The sentence about a missing or refused key."""
    return f"{host} refused the key. Check that it is complete." if has_key else f"{host} needs a key."


async def _detected(http: Http, on_loading: Callable[[], None]) -> tuple[Server, bool]:
    while True:
        try:
            return await detect(http)
        except RemoteError as error:
            if error.cause != "loading":
                raise
        on_loading()
        await asyncio.sleep(http.limits.poll)


def chosen(server: Server, wanted: str) -> ServedModel:
    """The model named ``wanted``; without a name, the loaded one or the first. Raises `RemoteError`."""
    if wanted:
        known = next((one for one in server.models if one.id == wanted), None)
        if known is None and server.models:
            raise RemoteError(
                "model", f"The server doesn't have the model “{printable(wanted)}” any more. Choose another."
            )
        return known or ServedModel(id=wanted)  # the server has no list
    if not server.models:
        raise RemoteError("model", "The server has no model. Load or download one there first.")
    return next((one for one in server.models if one.state == "loaded"), server.models[0])


def _with_model(server: Server, model: ServedModel) -> Server:
    """The server with this model's entry replaced."""
    models = [model if one.id == model.id else one for one in server.models]
    return msgspec.structs.replace(server, models=models)


async def _load_on_router(http: Http, model: ServedModel, on_loading: Callable[[], None]) -> ServedModel:
    """Have a llama-server in router mode load this model, and wait for it."""
    if model.state not in ("unloaded", "loading", "downloading"):
        return model
    if model.state == "unloaded":
        answer = await http.post("/models/load", {"model": model.id})
        if answer.status not in (200, 400):  # 400: another client has started it
            raise refusal(answer.status, answer.body, http.address.host)
    while True:
        listed = mapping((await http.get("/models")).json)
        entry = next((one for one in map(mapping, items(listed.get("data"))) if text(one.get("id")) == model.id), {})
        status = mapping(entry.get("status"))
        if text(status.get("value")) in ("loaded", "sleeping"):
            context = number(mapping(entry.get("meta")).get("n_ctx")) or 0
            return ServedModel(id=model.id, state="loaded", context_length=context)
        if status.get("failed"):
            raise RemoteError("model", f"The server couldn't load “{printable(model.id)}”. Its own log says why.")
        if not entry:
            raise RemoteError("model", f"The server doesn't have “{printable(model.id)}” any more.")
        on_loading()
        await asyncio.sleep(http.limits.poll)


async def _abilities(http: Http, kind: ServerKind, model: ServedModel, on_loading: Callable[[], None]) -> _Abilities:
    if kind in _LLAMA_KINDS:
        return _of_props(await _props(http, model.id, on_loading))
    if kind == "ollama":
        return _of_show(mapping((await http.post("/api/show", {"model": model.id})).json))
    levels = list(DIALECTS[kind].levels)
    known = await counters.read(http, "vllm") if kind == "vllm" else None
    return _Abilities(levels=levels, may_think=bool(levels), is_drafting=counters.is_drafting(known) if known else None)


async def _props(http: Http, model: str, on_loading: Callable[[], None]) -> dict[str, Any]:
    """llama-server's ``/props``, empty if it has none."""
    while True:
        answer = await http.get("/props", model=model)
        if answer.status == 200:
            return mapping(answer.json)
        error = refusal(answer.status, answer.body, http.address.host)
        if error.cause == "key":
            raise error
        if error.cause != "loading":
            return {}
        on_loading()
        await asyncio.sleep(http.limits.poll)


def _of_props(props: dict[str, Any]) -> _Abilities:
    settings = mapping(props.get("default_generation_settings"))
    template, own = text(props.get("chat_template")), mapping(props.get("slipstream"))
    levels = [*(("off", "on") if "enable_thinking" in template else ())]
    if "reasoning_effort" in template or mapping(props.get("chat_template_caps")).get("supports_reasoning_effort"):
        levels = [*levels[:1], *_EFFORTS]
    if own:
        levels = [one for one in map(text, items(own.get("thinking"))) if one]
    return _Abilities(
        version=text(props.get("build_info")),
        context_length=number(settings.get("n_ctx")) or 0,
        levels=levels,
        may_think=bool(levels) or "<think>" in template,
        sees=mapping(props.get("modalities")).get("vision") is True,
        sampling=mapping(settings.get("params")),
        variables=[one for one in map(text, items(own.get("template_variables"))) if one],
    )


def _of_show(shown: dict[str, Any]) -> _Abilities:
    """Ollama's ``/api/show``."""
    can = items(shown.get("capabilities"))
    levels: list[str] = []
    if "thinking" in can:
        family = text(mapping(shown.get("details")).get("family"))
        levels = [*_EFFORTS] if family == "gptoss" else ["off", "on"]
    info = mapping(shown.get("model_info"))
    context = number(info.get(f"{text(info.get('general.architecture'))}.context_length"))
    return _Abilities(context_length=context or 0, levels=levels, may_think=bool(levels), sees="vision" in can)


def _pair(request: int, server: Server, model: ServedModel, can: _Abilities, *, has_stats: bool) -> PairLoaded:
    dialect = DIALECTS[server.kind]
    sampling, recommended = _sampling(dialect, can.sampling)
    refused = dialect.refused()
    if not can.sees:
        refused["images"] = f"{dialect.name} doesn't say that this model can see images."
    if not can.levels:
        refused["thinking"] = f"{dialect.name} doesn't say how this model's thinking could be controlled."
    if can.is_drafting:
        refused["min_p"] = f"{dialect.name} can't use min-p while it drafts."
    if can.version:
        server = msgspec.structs.replace(server, version=printable(can.version))
    remote = RemoteModel(
        server=server,
        model=model.id,
        figures="reply" if has_stats else "none" if dialect.kind == "lm_studio" else dialect.figures,
        figures_note=dialect.note if can.is_drafting is not False else VLLM_WITHOUT_DRAFTING,
        refused=refused,
        formats=list(dialect.formats),
        can_continue=dialect.can_continue,
        can_count=dialect.kind in ("llama.cpp", "vllm"),
        can_switch_drafting=dialect.kind == "ollama",
    )
    return PairLoaded(
        request=request,
        target=ModelInfo(path="", name=display_name(model.id)),
        context_length=min(filter(None, (model.context_length, can.context_length)), default=0),
        thinking=can.levels,
        may_think=can.may_think,
        template_variables=can.variables,
        sampling=sampling,
        recommended=recommended,
        remote=remote,
    )


def display_name(model: str) -> str:
    """A model's name without the folders that some servers prepend."""
    name = model.replace("\\", "/").rstrip("/")
    name = name.rpartition("/")[2] if name.endswith(".gguf") or name.startswith("/") else name
    return printable(name.removesuffix(".gguf") or model)


def _sampling(dialect: Dialect, params: dict[str, Any]) -> tuple[Sampling, list[str]]:
    """The server's default sampling, and the fields that it reported."""
    sampling, reported = Sampling(), []
    for name, theirs in dialect.sampling.items():
        value = params.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            whole = isinstance(getattr(sampling, name), int)
            changed = {name: int(value) if whole else round(float(value), 6)}
            try:
                sampling = system.convert({**msgspec.to_builtins(sampling), **changed}, Sampling)
            except (msgspec.ValidationError, OverflowError):
                continue
            reported.append(name)
    return sampling, reported


# Servers at this machine's usual ports; only contacted when the user asks, and never with a key.

PORTS = (8080, 8000, 11434, 1234, 30000, 9931, 1337, 4891, 3000)
"""llama-server and Slipstream; vLLM and TensorRT-LLM; Ollama; LM Studio; SGLang; llama.cpp's app; Jan; GPT4All; TGI."""


async def find(question: FindServers, limits: Limits, ports: tuple[int, ...] = PORTS) -> ServersFound:
    """All identified servers, in the order of the ports."""
    found = await asyncio.gather(*(_at(port, limits) for port in ports))
    servers = [server for server in found if server is not None]
    return ServersFound(request=question.request, servers=servers)


async def _at(port: int, limits: Limits) -> Server | None:
    try:
        return await _ask(Probe(request=0, address=f"http://127.0.0.1:{port}", loopback_only=True), limits, limits.find)
    except RemoteError:
        return None


async def probe(question: Probe, limits: Limits) -> ServerProbed:
    """The server at an address, or why there is none."""
    try:
        server = await _ask(question, limits)
    except RemoteError as error:
        return ServerProbed(request=question.request, cause=error.cause, message=str(error))
    if server.needs_key:
        message = needs_key(address.parse(question.address).host, has_key=bool(question.key))
        return ServerProbed(request=question.request, server=server, cause="key", message=message)
    return ServerProbed(request=question.request, server=server)


async def _ask(question: Probe, limits: Limits, seconds: float = 0.0) -> Server:
    http = Http(address.parse(question.address), question.key, limits, loopback_only=question.loopback_only)
    try:
        return (await detect(http, seconds))[0]
    finally:
        await http.close()
