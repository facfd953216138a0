"""What the window sends to an engine; `app.protocol.frames` turns it into bytes, and the answers back."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

import msgspec

from app.protocol.answering import AnswerSettings, with_fields_of
from app.protocol.options import MAX_COUNT, MAX_LOGPROBS, HeadChoice, LoadSettings, Overflow, Role, TemplateVariables
from app.protocol.remote import Connect, FindServers, Probe
from app.protocol.tools import ToolCall, ToolUse


class Image(msgspec.Struct, frozen=True, gc=False):
    """An image that goes with a message; the engine reads the file."""

    sha256: str
    """Of the file, in hexadecimal."""
    path: str
    name: str = ""
    """What the user calls it, where that isn't the name of the file."""

    @property
    def title(self) -> str:
        """For sentences."""
        return self.name or PurePath(self.path).name


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One turn of a chat as the chat template sees it."""

    role: Role
    content: str
    thinking: str = ""
    """What the model thought before this answer; the template decides whether that goes into the prompt."""
    sent_at: float | None = None
    """Seconds since 1970. The first one of a chat is the time that its template sees, always: a date that changed at
    midnight would change the whole prompt. ``None`` in all of them: now."""
    images: tuple[Image, ...] = ()
    """They stand before the content, in this order."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Those of an answer, behind its content."""
    tool_call_id: str = ""
    """Of the role ``tool``: the call whose result this is."""
    tool_name: str = ""
    """Of the role ``tool``: the function that was called."""


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load a target and, if given, a draft. Whatever was loaded before is unloaded first."""

    request: int
    target: str
    draft: str | None = None
    """A draft model, or a file with the target's MTP head."""
    projector: str | None = None
    """A file (``mmproj``) with which the target sees images."""
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target. ``auto``: not together with a draft model."""
    chat_template: str = ""
    """Used instead of the target's own: the name of a general one (`TemplateKind`), or the path of a file with Jinja
    source."""
    settings: LoadSettings = LoadSettings()


class ChatPart(msgspec.Struct, frozen=True, kw_only=True, tag="chat_part"):
    """Messages of the chat that the next `CountTokens` or `Generate` is about: a long chat is sent in parts."""

    messages: list[Message]
    kept: int = 0
    """How many messages stand before these. They are the first of those that the process was sent last: only what is
    new of a chat is sent with each letter that is typed, and with each question."""


class Question(AnswerSettings, frozen=True, kw_only=True):
    """What is asked about a chat, and how it is to be answered."""

    request: int
    messages: list[Message]
    private: bool = False
    """Its KV cache is never copied to disk. In memory, it and its copies are overwritten before a chat is answered that
    isn't private. Its figures don't go into the pair's history either."""
    raw: bool = False
    """Use the contents as the prompt, without a chat template."""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)


class Generate(Question, frozen=True, kw_only=True, tag="generate"):
    """Answer a chat."""

    kept: int = 0
    """As `ChatPart.kept`."""
    continued: list[int] = msgspec.field(default_factory=list)
    """The tokens of the answer so far (each `Piece.id`): the answer continues after them as if it had never been cut
    off, and only what is new is sent. Empty: a new answer.
    """
    continue_last: bool = False
    """For a remote engine, which has no token ids: the last message is an answer that was cut off, and only what
    continues it is sent (`RemoteModel.can_continue`)."""
    chat: str = ""
    """The id of a stored chat, with which its KV cache can be forgotten; empty: none."""
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """How many of the most likely tokens to send with each one of the answer, and how likely they and itself were;
    ``None``: nothing of that."""
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    """By token, what is added to the target's logits before everything else."""
    tools: ToolUse | None = None
    """What the model may call, where `PairLoaded.tool_format` says how. With a ``format``, which has to be JSON, the
    answer is calls or follows it."""


class MeasurePlain(Question, frozen=True, kw_only=True, tag="measure_plain"):
    """Decode an answer without a draft and without showing it, as a baseline for the speed-up."""

    seed: int | None = 0
    max_tokens: Annotated[int, msgspec.Meta(ge=2, le=MAX_COUNT)] | None = 128


class ScoreTokens(Question, frozen=True, kw_only=True, tag="score_tokens"):
    """Look again at the target's choice after ``answer`` (token ids): how it scores ``candidates`` there. All else is
    as the answer was asked for."""

    answer: list[int]
    candidates: list[int]


def generate(settings: AnswerSettings, messages: list[Message], **others: Any) -> Generate:
    """What an engine is asked for an answer to ``messages``, of which the system prompt is the first."""
    return with_fields_of(Generate, settings, request=0, messages=messages, system_prompt="", **others)


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """How many tokens a chat would take if ``text`` were sent now; answered even during a computation, like `Ping`.

    A newer one replaces one that is still waiting, which is then never answered. There is no answer either if nothing
    is loaded, or if the template rejects the chat.
    """

    request: int
    messages: list[Message]
    """With the system prompt, without ``text``."""
    kept: int = 0
    """As `ChatPart.kept`."""
    text: str = ""
    """What the user has typed; empty if nothing."""
    attached: int = 0
    """The tokens of what is attached to that, besides ``images``."""
    parts: list[str] = []
    """Texts to be counted on their own: attachments whose tokens aren't known yet."""
    images: tuple[Image, ...] = ()
    """What the user has attached."""
    overflow: Overflow = "drop_oldest"
    thinking: str = ""
    """As in `Generate.thinking`."""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)


class CountPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="count_prompt"):
    """How many tokens the prompt for a chat has, whatever the context holds; answered even during a computation."""

    request: int
    messages: list[Message]
    thinking: str = ""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)
    tools: ToolUse | None = None


class CheckText(msgspec.Struct, frozen=True, kw_only=True, tag="check_text"):
    """Whether an answer without stored tokens can be continued; answered even during a computation, like `Ping`."""

    request: int
    text: str
    thought: str = ""
    """What the model thought before it. With an empty ``text`` the answer was cut while it thought."""
    thinking: str = ""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, tag="tokenize"):
    """The tokens of a text alone, without a chat template; answered even during a computation, like `Ping`."""

    request: int
    text: str
    special: bool = True
    """Whether the text of a control token is that token."""
    bos: bool = False
    """Whether to put the BOS token in front, where the model wants one."""


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """Erase saved KV caches, in memory and on disk: nothing of a deleted chat may be left anywhere."""

    chats: list[str] = []
    """Those of these chats (`Generate.chat`) and of unknown ones; empty: all."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop whatever is running: loading, prompt processing or decoding. Takes effect within one verify pass."""


class StopThinking(msgspec.Struct, frozen=True, kw_only=True, tag="stop_thinking"):
    """Let the answer begin now; nothing where no model is thinking. Takes effect within one verify pass."""


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Answered at once by a separate thread, even while the engine computes."""


class ReadMemory(msgspec.Struct, frozen=True, kw_only=True, tag="read_memory"):
    """How much memory the engine and its GPUs use now; answered at once, like `Ping`."""


class Quit(msgspec.Struct, frozen=True, kw_only=True, tag="quit"):
    pass


Command = (
    Load
    | Connect
    | ChatPart
    | Generate
    | MeasurePlain
    | ScoreTokens
    | CountTokens
    | CountPrompt
    | CheckText
    | Tokenize
    | Forget
    | Cancel
    | StopThinking
    | Ping
    | ReadMemory
    | Probe
    | FindServers
    | Quit
)
