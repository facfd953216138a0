"""A chat to tokens: its template, control tokens, and what leaves when the chat outgrows the context.

The helper process compiles and renders templates.
"""

from __future__ import annotations

import bisect
import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from app import helper
from app.errors import KnownError
from app.helper import messages as helper_messages
from app.protocol.messages import Message

_REMEMBERED_CHATS = 32
LEAST_ANSWER = 16
"""At least this many tokens must be left for an answer, or the message is refused."""
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_STOPS = ["<|im_end|>", "<|im_start|>"]
"""For a model that wasn't made for ChatML its markers are ordinary text, so they must stop the answer as strings."""

_OTHER_FILE = "so it can't be used. Try another file of this model."
_REFUSALS = {
    "broken": "The model's chat template is broken ({detail}). Try another file of this model.",
    "endless": f"The model's chat template produces endless text, {_OTHER_FILE}",
    "loses": f"The model's chat template leaves out your messages, {_OTHER_FILE}",
    "failed": "The model's chat template failed ({detail}).",
}


class ChatTemplate:
    """Renders messages to the text a model expects."""

    def __init__(self, source: str, bos: str = "", eos: str = "", process: helper.Helper | None = None) -> None:
        """``process``: what compiles and renders it, by default the helper that all of this process share.

        Raises `KnownError` when ``source`` is no valid template.
        """
        self._source = source
        self._bos = bos
        self._eos = eos
        self._helper = process or helper.shared()
        self._ask(helper_messages.CheckTemplate(source))

    def render(self, chat: Sequence[Message], now: datetime | None = None) -> str:
        """The prompt for ``chat``, up to where the answer begins. ``now``: the local time that the template sees.

        Some templates refuse a system message; its text then goes in front of the first message of the user. Raises
        `KnownError` when the template fails, leaves out the last message, passes the time or the memory of a request
        (`app.helper.limits`) or writes more than 16 MB.
        """
        plain = [helper_messages.Message(role=message.role, content=message.content) for message in chat]
        now = now or datetime.now()
        return self._ask(helper_messages.RenderTemplate(self._source, self._bos, self._eos, plain, now.isoformat()))

    def forget(self) -> None:
        """End the process that rendered it, and what is left of messages in its memory."""
        self._helper.stop()

    def _ask(self, request: helper_messages.CheckTemplate | helper_messages.RenderTemplate) -> str:
        try:
            answer = self._helper.template(request)
        except helper.HelperError as error:
            raise KnownError(_sentence(error)) from error
        if isinstance(answer, helper_messages.TemplateFailed):
            raise KnownError(_REFUSALS[answer.reason].format(detail=answer.detail))
        return answer.text


def _sentence(error: helper.HelperError) -> str:
    match error:
        case helper.TookTooLong():
            seconds = f"{helper.TIME_LIMIT_SECONDS:.0f} seconds"
            return f"The model's chat template did not finish within {seconds}, {_OTHER_FILE}"
        case helper.TooMuchMemory():
            limit = f"{helper.MEMORY_LIMIT // 2**20} MB"
            return f"The model's chat template needs more than {limit} of memory, {_OTHER_FILE}"
        case helper.NotStarted():
            return (
                f"The process that reads chat templates couldn't be started ({error}). Close other programs and try "
                "again."
            )
        case _:
            return (
                "The process that reads chat templates ended unexpectedly, so there is no answer. Try again; if it "
                "keeps happening, try another file of this model."
            )


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.context.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def chat_template(self) -> str | None: ...
    def special_text(self, which: str) -> str: ...
    def control_texts(self) -> list[str]: ...


@dataclass(frozen=True)
class Prompt:
    """Token ids to feed, and what was left out of the chat to make them fit."""

    tokens: list[int]
    dropped_messages: int = 0
    stops: list[str] = field(default_factory=list)


class PromptBuilder:
    """Builds prompts for one loaded target."""

    def __init__(
        self, vocabulary: Vocabulary, context_length: int, clock: Callable[[], datetime] = datetime.now
    ) -> None:
        """``context_length`` in tokens; ``clock`` tells the local time. Raises `KnownError` for a broken template."""
        self._clock = clock
        self._times: dict[bytes, datetime] = {}
        """When each chat began, by a digest of how it begins: a template that writes the date must not change a prompt
        (nor lose its KV cache) at midnight. The most recently answered chat comes last."""
        self._vocabulary = vocabulary
        self._context_length = context_length
        source = vocabulary.chat_template()
        self.template: Literal["model", "chatml"] = "model" if source else "chatml"
        self._bos = vocabulary.special_text("bos")
        self._template = ChatTemplate(source or CHATML, self._bos, vocabulary.special_text("eos"))
        self._controls = vocabulary.control_texts()
        self._control_ends = tuple(self._controls)
        self._now = clock()
        self._dropped: list[list[Message]] = []
        """What was dropped from chats that were too long, the most recently answered first."""

    def raw(self, text: str) -> Prompt:
        """``text`` as it is, with the BOS token where the model wants one. Raises `KnownError` when it is too long."""
        tokens = self._vocabulary.tokenize(text, special=True, bos=True)
        if not tokens:
            raise KnownError("The prompt is empty. This model needs at least one token to start from.")
        self._check_length(len(tokens))
        return Prompt(tokens)

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The prompt for a chat whose last message is the user's.

        The oldest turns, never the system prompt, leave when a quarter of the context would not be free for the answer;
        half of the context is then made free at once, so that the next turns can go on from the KV cache. Raises
        `KnownError` when the system prompt and the last message alone are too long.
        """
        system = [messages[0]] if messages and messages[0].role == "system" else []
        turns = list(messages[len(system) :])
        if not turns:
            raise KnownError("There is no message to answer.")
        self._now = self._time_of(system, turns)
        drop = self._remembered(turns)
        tokens = self._tokens([*system, *turns[drop:]])
        if len(tokens) > self._context_length * 3 // 4:
            drop, tokens = self._shortened(system, turns, drop)
        self._check_length(len(tokens))
        if dropped := turns[:drop]:
            others = (other for other in self._dropped if other != dropped)
            self._dropped = [dropped, *others][:_REMEMBERED_CHATS]
        return Prompt(tokens, drop, CHATML_STOPS if self.template == "chatml" else [])

    def _shortened(self, system: list[Message], turns: list[Message], drop: int) -> tuple[int, list[int]]:
        """Drop the fewest turns that leave half of the context free, by bisection: a chat may have thousands."""
        starts = [i for i in range(drop + 1, len(turns)) if turns[i].role == "user" or i == len(turns) - 1] or [drop]
        tried: dict[int, list[int]] = {}

        def fits(start: int) -> bool:
            tried[start] = self._tokens([*system, *turns[start:]])
            return len(tried[start]) <= self._context_length // 2

        start = starts[bisect.bisect_left(starts, True, hi=len(starts) - 1, key=fits)]
        return start, tried.get(start) or self._tokens([*system, *turns[start:]])

    def _remembered(self, turns: list[Message]) -> int:
        """Start where the last prompt of this chat started: only then is its KV cache of use."""
        lengths = (len(dropped) for dropped in self._dropped if turns[: len(dropped)] == dropped)
        return next((length for length in lengths if length < len(turns)), 0)

    def _time_of(self, system: list[Message], turns: list[Message]) -> datetime:
        """The time that the template sees: always the same one in a chat, which begins with its first message."""
        first = [f"{message.role}\0{message.content}" for message in (*system, turns[0])]
        key = hashlib.sha256("\0\0".join(first).encode("utf-8", "replace")).digest()
        now = self._clock()
        began = self._times.pop(key, now)
        if len(turns) == 1 and began.date() != now.date():
            began = now  # another chat that begins alike
        self._times[key] = began
        if len(self._times) > _REMEMBERED_CHATS:
            del self._times[next(iter(self._times))]
        return began

    def forget(self) -> None:
        """Forget what earlier chats said."""
        self._dropped = []
        self._times = {}
        self._template.forget()

    def _check_length(self, count: int) -> None:
        if count > self._context_length - LEAST_ANSWER:
            raise KnownError(
                f"This message has {count:,} tokens, but the context only holds {self._context_length:,}. Shorten "
                "the message or choose a longer context."
            )

    def _tokens(self, messages: Sequence[Message]) -> list[int]:
        text, hidden = self._rendered(messages)
        bos = not (self._bos and text.startswith(self._bos))
        tokens: list[int] = []
        before, before_is_special = "", False
        for part, special in _split(text, hidden):
            if before and not (before_is_special and before.endswith(self._control_ends)):
                tokens += self._continued(part, special=special)
            else:
                tokens += self._vocabulary.tokenize(part, special=special, bos=bos and not before)
            before, before_is_special = part, special
        return tokens

    def _continued(self, text: str, *, special: bool) -> list[int]:
        """The tokens of text that goes on after other text, where some vocabularies would put a space in front.

        A line break in front keeps it away, and is taken off again where it stayed a token of its own.
        """
        line_break = self._vocabulary.tokenize("\n", special=False, bos=False)
        tokens = self._vocabulary.tokenize("\n" + text, special=special, bos=False)
        if tokens[: len(line_break)] == line_break:
            return tokens[len(line_break) :]
        return self._vocabulary.tokenize(text, special=special, bos=False)

    def _rendered(self, messages: Sequence[Message]) -> tuple[str, dict[str, str]]:
        """A rendered chat, and what stands for those of its messages that contain the text of a control token.

        Such text is the user's, not a control token. To tell it from the template's own wherever the template puts it,
        the template sees a word in its place that nobody can have typed.
        """
        hidden: dict[str, str] = {}
        shown: list[Message] = []
        for message in messages:
            content = message.content.strip()
            if not any(control in content for control in self._controls):
                shown.append(message)
                continue
            word = f"message-{secrets.token_hex(16)}"
            hidden[word] = content
            shown.append(Message(role=message.role, content=message.content.replace(content, word, 1)))
        return self._template.render(shown, self._now), hidden


def _split(text: str, hidden: dict[str, str]) -> list[tuple[str, bool]]:
    """Parts of a rendered prompt, and whether control tokens are read in them."""
    if not hidden:
        return [(text, True)] if text else []
    words = re.split(f"({'|'.join(hidden)})", text)
    return [(hidden.get(word, word), word not in hidden) for word in words if word]
