"""Messages between the tools process and its parent: `ToTools` and `FromTools`, as frames on its pipes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from app import system
from app.protocol import frames
from app.protocol.tools import MAX_TOOLS

BUILT_IN = ""
"""The server name of the built-in tools."""
MAX_RESULT_TEXT = 1_000_000
"""Bytes of UTF-8; a longer result is cut, and says so."""
MAX_RESULT_IMAGES = 20_000_000
"""Total bytes of the images in one result."""
DEFAULT_TIMEOUT_SECONDS = 60.0

Approach = Literal["read_only", "destructive", ""]
"""What a server says about a tool. Only a hint: it never allows anything."""


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server that the user has added: a command to start, or an address."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    """Variables in addition to HOME, LOGNAME, PATH, SHELL, TERM and USER (on Windows, the library's list)."""
    cwd: str = ""
    url: str = ""
    """For a server that speaks streamable HTTP; it has no ``command``."""
    headers: dict[str, str] = {}
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = DEFAULT_TIMEOUT_SECONDS
    """For one call without progress."""
    folders: list[str] = []
    """The folders that the server is told it may use (MCP's roots), all chosen by the user."""
    is_on: bool = True
    off: list[str] = []
    """The names of its tools that are switched off."""


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a server describes it."""

    name: str
    title: str = ""
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of its arguments."""
    approach: Approach = ""


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    is_required: bool = False


class ServerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that a server offers."""

    name: str
    title: str = ""
    description: str = ""
    arguments: list[PromptArgument] = []


class ServerResource(msgspec.Struct, frozen=True, kw_only=True):
    """A text or an image that a server offers for reading."""

    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    size: int = 0
    """In bytes; 0 if unknown."""


class ResultImage(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    data: bytes


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a chat that a built-in tool may read."""

    name: str
    path: str = ""
    text: str = ""
    """Replaces ``path`` in a chat that isn't stored."""


# ------------------------------------------------------------ to the process


class StartServer(msgspec.Struct, frozen=True, kw_only=True, tag="start_server"):
    """Start a server, or restart it with a new entry; `ServerChanged` messages report how it goes."""

    entry: ServerEntry
    secret: str = ""
    """An OAuth login as JSON, from an earlier `SecretChanged`."""
    is_offline: bool = False
    """Connections to other computers are refused; commands are started anyway."""


class StopServer(msgspec.Struct, frozen=True, kw_only=True, tag="stop_server"):
    name: str


class CallTool(msgspec.Struct, frozen=True, kw_only=True, tag="call_tool"):
    """Call a tool; several calls may run at once. `CallProgressed` may follow, one `CallEnded` always does."""

    request: int
    server: str
    """`BUILT_IN`, or the name of a running server."""
    tool: str
    arguments: str
    """A JSON object."""
    attached: list[Attached] = []
    """For built-in tools: the files attached to the chat."""
    folders: list[str] = []
    """For built-in tools: the folders that they may read."""


class GetPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="get_prompt"):
    """`CallEnded` has its text."""

    request: int
    server: str
    name: str
    arguments: dict[str, str] = {}


class ReadResource(msgspec.Struct, frozen=True, kw_only=True, tag="read_resource"):
    """`CallEnded` has its text or image."""

    request: int
    server: str
    uri: str


class CancelCall(msgspec.Struct, frozen=True, kw_only=True, tag="cancel_call"):
    """Cancel a request; its `CallEnded` has the state ``stopped``."""

    request: int


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The user's answer to `UserAsked`."""

    question: int
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = {}
    """Values by field of the question's schema; for ``sampling``, ``text`` has the answer."""


class Quit(msgspec.Struct, frozen=True, kw_only=True, tag="quit"):
    """Stop all servers and end the process."""


ToTools = StartServer | StopServer | CallTool | GetPrompt | ReadResource | CancelCall | Reply | Quit


# ------------------------------------------------------------ from the process


class ServerChanged(msgspec.Struct, frozen=True, kw_only=True, tag="server_changed"):
    """The state of a server and everything it offers."""

    name: str
    state: Literal["starting", "ready", "failed", "stopped"]
    message: str = ""
    """Why it failed, in one or two sentences for the user."""
    log: list[str] = []
    """The last lines that it printed, at most 200, with control characters made visible."""
    tools: Annotated[list[ServerTool], msgspec.Meta(max_length=MAX_TOOLS)] = []
    left_out: int = 0
    """How many of its tools were left out because it has too many."""
    prompts: list[ServerPrompt] = []
    resources: list[ServerResource] = []
    version: str = ""
    """The name and version that it gives itself, for display."""


class CallProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="call_progressed"):
    request: int
    done: float
    total: float | None = None
    message: str = ""


class CallEnded(msgspec.Struct, frozen=True, kw_only=True, tag="call_ended"):
    request: int
    state: Literal["done", "failed", "stopped"]
    text: str = ""
    """The result or, if the call failed, what went wrong, in the server's words or ours."""
    images: list[ResultImage] = []
    seconds: float = 0.0


class UserAsked(msgspec.Struct, frozen=True, kw_only=True, tag="user_asked"):
    """A server asks the user something during a call (elicitation), or wants an answer from the model (sampling).
    `Reply` answers it; if the call ends first, the process declines by itself."""

    question: int
    server: str
    kind: Literal["elicitation", "sampling", "login"]
    message: str
    fields: dict[str, Any] = {}
    """For an elicitation: the JSON schema of a flat object."""
    url: str = ""
    """For a login: the page where the user approves it."""


class QuestionWithdrawn(msgspec.Struct, frozen=True, kw_only=True, tag="question_withdrawn"):
    """A `UserAsked` no longer needs an answer."""

    question: int


class SecretChanged(msgspec.Struct, frozen=True, kw_only=True, tag="secret_changed"):
    """An OAuth login to store in the keyring, for `StartServer.secret`; if it is empty, forget the stored one."""

    server: str
    secret: str


FromTools = ServerChanged | CallProgressed | CallEnded | UserAsked | QuestionWithdrawn | SecretChanged

_to_tools: system.Decoder[ToTools] = system.decoder(ToTools)
_from_tools: system.Decoder[FromTools] = system.decoder(FromTools)


def decode_to_tools(body: bytes) -> ToTools:
    """Raises `ProtocolError`."""
    return frames.decode(_to_tools, body)


def decode_from_tools(body: bytes) -> FromTools:
    """Raises `ProtocolError`."""
    return frames.decode(_from_tools, body)
