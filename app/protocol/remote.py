"""What is asked and said about other people's engines: servers in the dialect of OpenAI's API.

A remote engine is a process like ours, with the same commands and events. It is loaded by `Connect` instead of
`app.protocol.commands.Load`, and answered by the same `PairLoaded` (with ``remote`` set) or `LoadFailed`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from app.protocol.options import FormatKind

MAX_ADDRESS_CHARACTERS = 2048
MAX_KEY_CHARACTERS = 8192
MAX_SERVED_MODELS = 2000
"""A server's list is cut off there."""

ServerKind = Literal[
    "slipstream", "llama.cpp", "vllm", "sglang", "tensorrt_llm", "tgi", "ollama", "lm_studio", "openai"
]
"""``slipstream``: another one's server. ``openai``: something else that speaks the dialect."""
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
"""Where drafting figures come from: our engine counts them; or a server sends them while it answers, at the end of
each reply, or only as counters over all its replies; ``none``: there are none."""
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
"""Why something failed; the sentence beside it is for the user. ``address``: it can't be one. ``offline``: it isn't
this machine, and only this machine is allowed. ``key``: it is missing or refused. ``loading``: the server is loading
its model; trying again later helps. ``model``: it doesn't have the model. ``context``: the chat is too long. ``busy``:
too many requests. ``refused``: it didn't accept the request. ``cut``: the connection ended in the middle of an answer,
and what came is kept. ``not_a_server``: something answers, but not in this dialect. Empty: something else."""


class _WithKey(msgspec.Struct, frozen=True, kw_only=True):
    """An address, and a key that no log may contain."""

    request: int
    address: Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS_CHARACTERS)]
    """As typed: with or without ``http://`` and ``/v1``; a host without a scheme means http."""
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""
    loopback_only: bool = False
    """Offline mode: any other address than this machine's is refused."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(request={self.request}, address=…, key=…)"


class Connect(_WithKey, frozen=True, kw_only=True, tag="connect"):
    """Use a model on a server. Whatever was used before is left."""

    model: str = ""
    """One of `Server.models`; empty: the one that is loaded, or the first."""


class Probe(_WithKey, frozen=True, kw_only=True, tag="probe"):
    """Which server is there, and which models it has; answered beside whatever is running."""


class FindServers(msgspec.Struct, frozen=True, kw_only=True, tag="find_servers"):
    """Look for servers on this machine, at the usual ports; answered beside whatever is running. No key is sent."""

    request: int


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a server's list."""

    id: str
    state: ModelState = ""
    context_length: int = 0
    """In tokens; 0: not known."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was recognized."""

    kind: ServerKind
    version: str = ""
    address: str
    """Without ``/v1``, a key or a slash at the end; what `Connect` can be given again."""
    models: list[ServedModel] = []
    needs_key: bool = False
    """It answers, but not without a key; nothing else is known of it then."""
    is_loopback: bool = False
    """It is on this machine."""
    is_encrypted: bool = False
    """Neither this nor ``is_loopback``: whoever is on the way can read the chat and the key. Warn of it."""


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a server's model that is in use, beside what `PairLoaded` says of any pair."""

    server: Server
    model: str
    """Its id there."""
    figures: FiguresFrom = "none"
    """What can be expected. What really came stands in `DraftFigures.source` of each answer."""
    figures_note: str = ""
    """One or two sentences: where the figures come from, the flag that has to be switched on, or why there are none."""
    refused: dict[str, str] = {}
    """Chat settings that the server doesn't take, and why, for the user. By the name of the field in the chat's
    settings or in `Sampling`; also ``images``. They are left out of requests without a word."""
    formats: list[FormatKind] = []
    """What `Generate.format` may be."""
    can_continue: bool = False
    """Whether it continues an answer (`Generate.continue_last`)."""
    can_count: bool = False
    """Whether it answers `CountTokens`. Elsewhere only `Figures` say how full the context is."""
    can_switch_drafting: bool = False
    """Whether a request without drafting (`Generate.draft_length` 0) really is without drafting."""


class ServerProbed(msgspec.Struct, frozen=True, kw_only=True, tag="server_probed"):
    """The answer to `Probe`: a server, or why there is none. One that needs a key comes with both."""

    request: int
    server: Server | None = None
    cause: ServerFailure = ""
    message: str = ""
    """One or two sentences for the user; empty if all is well."""


class ServersFound(msgspec.Struct, frozen=True, kw_only=True, tag="servers_found"):
    """The answer to `FindServers`."""

    request: int
    servers: list[Server] = []
