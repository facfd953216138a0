"""Messages to an engine; `app.protocol.events` has its replies, `app.protocol.frames` their bytes."""

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
    """The user's name for it, if that isn't the file's."""

    @property
    def title(self) -> str:
        """Its name for display."""
        return self.name or PurePath(self.path).name


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One turn of a chat as the chat template sees it."""

    role: Role
    content: str
    thinking: str = ""
    """The model's thinking before this answer; the template decides whether it goes into the prompt."""
    sent_at: float | None = None
    """Seconds since 1970. The template's clock is the first one in the chat, because a date that changes at midnight
    would change the whole prompt; it is the current time if all are ``None``."""
    images: tuple[Image, ...] = ()
    """They come before the content, in this order."""
    tool_calls: tuple[ToolCall, ...] = ()
    """An answer's calls, after its content."""
    tokens: tuple[int, ...] = ()
    """With calls: the tokens in which this model wrote the whole turn (each `Piece.id`). The prompt has them, as far as
    the template writes the turn at all: what is in the KV cache stays valid."""
    tool_call_id: str = ""
    """With role ``tool``: the call that this is the result of."""
    tool_name: str = ""
    """With role ``tool``: the function that was called."""


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load a target and, if given, a draft. Whatever was loaded before is unloaded first."""

    request: int
    target: str
    draft: str | None = None
    """A draft model, or a file with only a head of the target."""
    projector: str | None = None
    """The ``mmproj`` file that lets the target see images."""
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target. ``auto``: not together with a draft model."""
    medusa: str | None = None
    """A safetensors file with Medusa heads for the target, or the folder that has it."""
    chat_template: str = ""
    """Instead of the target's own: the name of a general one (`TemplateKind`), or the path of a Jinja file."""
    settings: LoadSettings = LoadSettings()


class ChatPart(msgspec.Struct, frozen=True, kw_only=True, tag="chat_part"):
    """Part of a long chat, sent ahead of the `CountTokens` or `Generate` that is about it."""

    messages: list[Message]
    kept: int = 0
    """How many messages of the last chat that was sent come before these: only what is new gets sent."""


class Question(AnswerSettings, frozen=True, kw_only=True):
    """A chat, and the settings for the answer."""

    request: int
    messages: list[Message]
    private: bool = False
    """Its KV cache never reaches the disk, and its figures don't go into the pair's history. In memory, the cache and
    its copies are overwritten before a chat that isn't private is answered."""
    raw: bool = False
    """Use the contents as the prompt, without a chat template."""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)


class Generate(Question, frozen=True, kw_only=True, tag="generate"):
    """Answer a chat."""

    kept: int = 0
    """As `ChatPart.kept`."""
    continued: list[int] = msgspec.field(default_factory=list)
    """The answer's tokens so far (each `Piece.id`). It continues as if it had never been cut off, and only the new
    pieces are sent. Empty: a new answer."""
    continue_last: bool = False
    """The same for a remote engine, which has no token ids: the last message is the answer to continue
    (`RemoteModel.can_continue`)."""
    chat: str = ""
    """The id of a stored chat, so that `Forget` can name its KV cache; empty: none."""
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """How many of the most likely tokens to send with each token, besides its own log probability; ``None``: send no
    log probabilities."""
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    """By token; added to the target's logits before anything else."""
    tools: ToolUse | None = None
    """Written as `PairLoaded.tool_format` says. Together with a ``format``, which must be JSON, the answer either is
    calls or follows the format."""


class MeasurePlain(Question, frozen=True, kw_only=True, tag="measure_plain"):
    """Decode an answer without a draft, and don't show it: the baseline for the speed-up."""

    seed: int | None = 0
    max_tokens: Annotated[int, msgspec.Meta(ge=2, le=MAX_COUNT)] | None = 128


class ScoreTokens(Question, frozen=True, kw_only=True, tag="score_tokens"):
    """How the target scores ``candidates`` after ``answer`` (token ids). The other fields are those of the request that
    was answered."""

    answer: list[int]
    candidates: list[int]


def generate(settings: AnswerSettings, messages: list[Message], **others: Any) -> Generate:
    """A request for an answer to ``messages``, which include the system prompt."""
    return with_fields_of(Generate, settings, request=0, messages=messages, system_prompt="", **others)


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """How many tokens a chat would take if ``text`` were sent now; answered even during a computation, like `Ping`.

    A newer one replaces an unanswered one. There is no answer if nothing is loaded or the template rejects the chat.
    """

    request: int
    messages: list[Message]
    """Including the system prompt, without ``text``."""
    kept: int = 0
    """As `ChatPart.kept`."""
    text: str = ""
    """What the user has typed so far."""
    attached: int = 0
    """Tokens of the attached texts."""
    parts: list[str] = []
    """Texts to count separately: attachments that haven't been counted yet."""
    images: tuple[Image, ...] = ()
    """The attached images."""
    overflow: Overflow = "drop_oldest"
    thinking: str = ""
    """As in `Generate.thinking`."""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)
    tools: ToolUse | None = None


class CountPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="count_prompt"):
    """How many tokens a chat's prompt has, even if that exceeds the context; answered even during a computation."""

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
    """The thinking before it. With an empty ``text``, the answer was cut off while the model was thinking."""
    thinking: str = ""
    template_variables: TemplateVariables = msgspec.field(default_factory=dict)


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, tag="tokenize"):
    """The tokens of a text, without a chat template; answered even during a computation, like `Ping`."""

    request: int
    text: str
    special: bool = True
    """Read the names of control tokens as those tokens."""
    bos: bool = False
    """Put the BOS token in front, if the model wants one."""


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """Erase KV caches, in memory and on disk, so that nothing of a deleted chat is left."""

    chats: list[str] = []
    """By `Generate.chat`; caches of unknown chats go, too. Empty: all chats."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop whatever is running: loading, prompt processing or decoding. Takes effect within one verify pass."""


class StopThinking(msgspec.Struct, frozen=True, kw_only=True, tag="stop_thinking"):
    """Make the model stop thinking and begin its answer. Takes effect within one verify pass."""


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
