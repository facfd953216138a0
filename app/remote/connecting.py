"""From an address to a model that can be asked: what the server is, what it can do, and, where it says so, that the
model is loaded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app import decoders
from app.models.text import printable
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import Sampling
from app.protocol.remote import Connect, RemoteModel, ServedModel, Server
from app.remote import address, counters
from app.remote.detection import Found, detect
from app.remote.dialects import DIALECTS, VLLM_WITHOUT_DRAFTING, Dialect
from app.remote.failures import RemoteError, refusal
from app.remote.http import Http
from app.remote.limits import Limits
from app.remote.values import items, mapping, number, text

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
    """LM Studio's API with figures."""
    has_figures: bool = False
    """Drafting figures have come with an answer, so that no counters are needed."""

    @property
    def remote(self) -> RemoteModel:
        assert self.pair.remote is not None
        return self.pair.remote


@dataclass
class _Abilities:
    """What the server says about one model."""

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
    """Use a model. ``on_loading`` is called again and again while the server loads it. Raises `RemoteError`."""
    begun = time.monotonic()
    place = address.parse(command.address)
    http = Http(place, command.key, limits, loopback_only=command.loopback_only)
    try:
        found = await _detected(http, on_loading)
        if found.server.needs_key:
            raise RemoteError("key", needs_key(place.host, has_key=bool(command.key)))
        model = chosen(found.server, command.model)
        if found.server.kind == "llama.cpp":
            model = await _load_on_router(http, model, on_loading)
            found.server = _with_model(found.server, model)
        abilities = await _abilities(http, found, model, on_loading)
        pair = _pair(command.request, found, model, abilities, time.monotonic() - begun)
        return Session(http, DIALECTS[found.server.kind], model.id, pair, found.has_stats)
    except BaseException:
        await http.close()
        raise


def needs_key(host: str, *, has_key: bool) -> str:
    """The sentence about a server that wants a key, or another one."""
    return f"{host} refused the key. Check that it is complete." if has_key else f"{host} needs a key."


async def _detected(http: Http, on_loading: Callable[[], None]) -> Found:
    while True:
        try:
            return await detect(http)
        except RemoteError as error:
            if error.cause != "loading":
                raise
        on_loading()
        await asyncio.sleep(http.limits.poll)


def chosen(server: Server, wanted: str) -> ServedModel:
    """The model of that name; without a name the loaded one, or the first. Raises `RemoteError`."""
    if wanted:
        known = next((one for one in server.models if one.id == wanted), None)
        if known is None and server.models:
            raise RemoteError(
                "model", f"The server doesn't have the model “{printable(wanted)}” any more. Choose another."
            )
        return known or ServedModel(id=wanted)  # it has no list
    if not server.models:
        raise RemoteError("model", "The server has no model. Load or download one there first.")
    return next((one for one in server.models if one.state == "loaded"), server.models[0])


def _with_model(server: Server, model: ServedModel) -> Server:
    """With what is known of a model by now."""
    models = [model if one.id == model.id else one for one in server.models]
    return msgspec.structs.replace(server, models=models)


async def _load_on_router(http: Http, model: ServedModel, on_loading: Callable[[], None]) -> ServedModel:
    """Have a llama-server with several models load this one, and wait until it has."""
    if model.state not in ("unloaded", "loading", "downloading"):
        return model
    if model.state == "unloaded":
        answer = await http.post("/models/load", {"model": model.id})
        if answer.status not in (200, 400):  # 400: someone else was quicker
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


async def _abilities(http: Http, found: Found, model: ServedModel, on_loading: Callable[[], None]) -> _Abilities:
    if found.server.kind in _LLAMA_KINDS:
        return _of_props(await _props(http, model.id, on_loading))
    if found.server.kind == "ollama":
        return _of_show(mapping((await http.post("/api/show", {"model": model.id})).json))
    levels = list(DIALECTS[found.server.kind].levels)
    known = await counters.read(http, "vllm") if found.server.kind == "vllm" else None
    return _Abilities(levels=levels, may_think=bool(levels), is_drafting=known.is_drafting if known else None)


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


def _pair(request: int, found: Found, model: ServedModel, can: _Abilities, seconds: float) -> PairLoaded:
    dialect = DIALECTS[found.server.kind]
    sampling, recommended = _sampling(dialect, can.sampling)
    refused = dialect.refused()
    if not can.sees:
        refused["images"] = f"{dialect.name} doesn't say that this model can see images."
    if not can.levels:
        refused["thinking"] = f"{dialect.name} doesn't say how this model's thinking could be controlled."
    if can.is_drafting:
        refused["min_p"] = f"{dialect.name} can't use min-p while it drafts."
    server = found.server
    if can.version:
        server = msgspec.structs.replace(server, version=printable(can.version))
    remote = RemoteModel(
        server=server,
        model=model.id,
        figures="reply" if found.has_stats else "none" if dialect.kind == "lm_studio" else dialect.figures,
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
        load_seconds=seconds,
        remote=remote,
    )


def display_name(model: str) -> str:
    """A model's name without the folders that some servers put before it."""
    name = model.replace("\\", "/").rstrip("/")
    name = name.rpartition("/")[2] if name.endswith(".gguf") or name.startswith("/") else name
    return printable(name.removesuffix(".gguf") or model)


def _sampling(dialect: Dialect, params: dict[str, Any]) -> tuple[Sampling, list[str]]:
    """The server's own values, and which of them it told."""
    sampling, told = Sampling(), []
    for name, theirs in dialect.sampling.items():
        value = params.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            whole = isinstance(getattr(sampling, name), int)
            changed = {name: int(value) if whole else round(float(value), 6)}
            try:
                sampling = decoders.convert({**msgspec.to_builtins(sampling), **changed}, Sampling)
            except (msgspec.ValidationError, OverflowError):
                continue
            told.append(name)
    return sampling, told
