"""Which server is at an address: asked step by step, and never guessed from host or port (docs/remote.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.models.text import printable
from app.protocol.remote import MAX_SERVED_MODELS, ModelState, ServedModel, Server, ServerKind
from app.remote.failures import RemoteError, refusal
from app.remote.http import Answer, Http
from app.remote.values import items, mapping, number, text

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


@dataclass
class Found:
    """A server, with what it said of itself on the way."""

    server: Server
    info: dict[str, Any] = field(default_factory=dict)
    """TGI's ``/info``."""
    has_stats: bool = False
    """LM Studio has its older API (``/api/v0``), which is the one with figures."""


async def detect(http: Http, seconds: float = 0.0) -> Found:
    """Ask a server what it is, and for its models. Each request may take ``seconds``; 0: as usual.

    Raises `RemoteError`. A server that needs another key is found, but nothing is known of it.
    """
    listed = await http.get("/v1/models", seconds)
    if listed.status in (401, 403):
        kind: ServerKind = "llama.cpp" if _is_llama_server(listed) else "openai"
        return Found(_server(http, kind, needs_key=True))
    if listed.status == 503:
        raise refusal(listed.status, listed.body, http.address.host, listed.headers.get("Retry-After", ""))
    if _is_llama_server(listed) and listed.status == 200:
        return Found(_server(http, "llama.cpp", _models(listed.json)))
    found = [mapping(one) for one in items(mapping(listed.json).get("data"))] if listed.status == 200 else []
    for owner, kind in _OWNERS.items():
        if any(text(one.get("owned_by")) == owner for one in found):
            return Found(await _complete(http, kind, _models(listed.json), seconds))
    return await _of_others(http, listed, seconds)


async def _of_others(http: Http, listed: Answer, seconds: float) -> Found:
    """Those that ``/v1/models`` doesn't tell apart."""
    if b"Ollama is running" in (await http.get("/", seconds)).body[:1000]:
        return Found(await _complete(http, "ollama", _models(listed.json), seconds))
    older = mapping((await http.get("/api/v0/models", seconds)).json)
    if any("compatibility_type" in mapping(one) for one in items(older.get("data"))):
        return Found(_server(http, "lm_studio", _models(older)), has_stats=True)
    newer = mapping((await http.get("/api/v1/models", seconds)).json)
    if any("key" in mapping(one) for one in items(newer.get("models"))):
        return Found(_server(http, "lm_studio", _lm_studio_models(newer)))
    info = mapping((await http.get("/info", seconds)).json)
    if text(info.get("router")) == "text-generation-router":
        return Found(_tgi(http, info), info)
    if listed.status == 200 and isinstance(listed.json, dict) and isinstance(listed.json.get("data"), list):
        return Found(_server(http, "openai", _models(listed.json)))
    if listed.status >= 400 and listed.status != 404:
        raise refusal(listed.status, listed.body, http.address.host, listed.headers.get("Retry-After", ""))
    raise RemoteError(
        "not_a_server",
        f"{http.address.host} answers, but not like a server for language models. Check the address and the port.",
    )


def _is_llama_server(answer: Answer) -> bool:
    return answer.headers.get("Server", "") == "llama.cpp"


async def _complete(http: Http, kind: ServerKind, models: list[ServedModel], seconds: float) -> Server:
    """With the version, and what only the server's own API says of its models."""
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
