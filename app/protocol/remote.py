"""Messages about other people's engines: servers that speak a dialect of OpenAI's API.

A remote engine is one of our processes, with the same commands and events. `Connect` takes the place of
`app.protocol.commands.Load`; the reply is `PairLoaded` (with ``remote`` set) or `LoadFailed`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from app.protocol.options import FormatKind

MAX_ADDRESS_CHARACTERS = 2048
MAX_KEY_CHARACTERS = 8192
MAX_SERVED_MODELS = 2000
"""Longer lists are cut off."""

ServerKind = Literal[
    "slipstream", "llama.cpp", "vllm", "sglang", "tensorrt_llm", "tgi", "ollama", "lm_studio", "openai"
]
"""``slipstream``: another Slipstream. ``openai``: anything else that speaks the dialect."""
SERVER_NAMES: dict[ServerKind, str] = {
    "slipstream": "Slipstream",
    "llama.cpp": "llama-server",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt_llm": "TensorRT-LLM",
    "tgi": "TGI",
    "ollama": "Ollama",
    "lm_studio": "LM Studio",
    "openai": "OpenAI-compatible server",
}
"""For display."""
ModelState = Literal["", "unloaded", "loading", "loaded", "sleeping", "downloading"]
"""Empty: the server doesn't say."""
FiguresFrom = Literal["engine", "live", "reply", "counters", "none"]
"""Where drafting figures come from: our engine; a server, while it answers, at the end of each reply, or only as totals
over all its replies; or nowhere."""
ServerFailure = Literal[
    "",
    "address",
    "offline",
    "unreachable",
    "certificate",
    "key",
    "loading",
    "model",
    "context",
    "busy",
    "refused",
    "timeout",
    "cut",
    "not_a_server",
]
"""Why a request failed; the sentence next to it is for the user. ``address``: not an address. ``offline``: another
machine, in offline mode. ``key``: missing or refused. ``loading``: the server is loading its model; try again later.
``model``: the server doesn't have it. ``context``: the chat is too long. ``busy``: too many requests. ``refused``: the
server rejected the request. ``cut``: the connection ended in the middle of an answer, whose beginning is kept.
``not_a_server``: something answers, but not in this dialect. Empty: anything else."""


class _WithKey(msgspec.Struct, frozen=True, kw_only=True):
    """An address, and a key that must not appear in logs."""

    request: int
    address: Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS_CHARACTERS)]
    """As typed, with or without ``http://`` and ``/v1``; the default scheme is http."""
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""
    loopback_only: bool = False
    """Offline mode: refuse addresses of other machines."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(request={self.request}, address=…, key=…)"


class Connect(_WithKey, frozen=True, kw_only=True, tag="connect"):
    """Use a model on a server, instead of the one in use."""

    model: str = ""
    """One of `Server.models`; empty: the loaded one, or the first."""


class Probe(_WithKey, frozen=True, kw_only=True, tag="probe"):
    """Identify a server and list its models; answered even during a request."""


class FindServers(msgspec.Struct, frozen=True, kw_only=True, tag="find_servers"):
    """Look for servers at this machine's usual ports, sending no key; answered even during a request."""

    request: int


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a server's list."""

    id: str
    state: ModelState = ""
    context_length: int = 0
    """0: unknown."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was identified."""

    kind: ServerKind
    version: str = ""
    address: str
    """For `Connect`: without ``/v1``, key or trailing slash."""
    models: list[ServedModel] = []
    needs_key: bool = False
    """It refuses to say anything without a key, so the other fields are unknown."""
    is_loopback: bool = False
    """It is on this machine."""
    is_encrypted: bool = False
    """If neither this nor ``is_loopback``, warn the user: anyone on the network path can read the chat and the key."""


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """What `PairLoaded` adds for a model on a server."""

    server: Server
    model: str
    """Its id there."""
    figures: FiguresFrom = "none"
    """The expected source; `DraftFigures.source` has the actual one for each answer."""
    figures_note: str = ""
    """For the user: the source of the figures, the server's flag that enables them, or why there are none."""
    refused: dict[str, str] = {}
    """Settings that the server doesn't support, by their field in the chat's settings or `Sampling` (or ``images``),
    with the reason for the user. Requests silently leave them out."""
    formats: list[FormatKind] = []
    """The kinds of `Generate.format` that it supports."""
    can_continue: bool = False
    """Whether it supports `Generate.continue_last`."""
    can_count: bool = False
    """Whether it answers `CountTokens`. If not, only `Figures` show how full the context is."""
    can_switch_drafting: bool = False
    """Whether `Generate.draft_length` 0 really turns its drafting off."""


class ServerProbed(msgspec.Struct, frozen=True, kw_only=True, tag="server_probed"):
    """The answer to `Probe`: a server, or why there is none; both if it needs a key."""

    request: int
    server: Server | None = None
    cause: ServerFailure = ""
    message: str = ""
    """One or two sentences for the user; empty on success."""


class ServersFound(msgspec.Struct, frozen=True, kw_only=True, tag="servers_found"):
    """The answer to `FindServers`."""

    request: int
    servers: list[Server] = []
