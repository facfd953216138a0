"""The chat template of a model: which one is used, compiled and rendered by the helper process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app import helper, words
from app.engine.decoding import Vocabulary
from app.helper import messages as helper_messages
from app.protocol.commands import Message
from app.protocol.options import TEMPLATE_TITLES, GeneralTemplate, TemplateKind, TemplateVariables
from app.protocol.tools import Tool, definition
from app.system import KnownError

Answer = TypeVar("Answer")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TRIED_AT = datetime(2026, 1, 1)
_REASONS = {
    "broken": "is broken ({detail})",
    "endless": "produces endless text",
    "loses": "leaves out what you wrote",
    "failed": "failed ({detail})",
}


class UnusableTemplateError(KnownError):
    """There is no prompt because of the template, not because of the helper or the chat."""

    def __init__(self, reason: str) -> None:
        """``reason`` completes a sentence that begins with "The chat template"."""
        super().__init__(f"The model's chat template {reason}. Choose another one where you open the model.")
        self.reason = reason


@dataclass(frozen=True)
class TemplateInputs:
    """What a template sees besides the messages: the local time, those of its variables that are set, and tools."""

    now: datetime
    variables: TemplateVariables = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    text_arguments: bool = False
    """Whether the template wants the arguments of calls as JSON text rather than as an object."""


class ChatTemplate:
    """Renders messages to the text a model expects.

    Attributes:
        source: In Jinja.
        variables: The names that `TemplateInputs.variables` may have.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "", process: helper.Helper | None = None) -> None:
        """``process`` compiles and renders it: by default the helper that is shared in this process.

        Raises `KnownError` when ``source`` isn't a valid template.
        """
        self.source = source
        self._bos = bos
        self._eos = eos
        self._helper = process or helper.shared()
        checked = _asked(self._helper, helper_messages.CheckTemplate(source))
        if checked.broken:
            raise UnusableTemplateError(_REASONS["broken"].format(detail=checked.broken))
        self.variables = frozenset(checked.variables)

    def render(self, chat: Sequence[Message], inputs: TemplateInputs | None = None) -> str:
        """The prompt for ``chat``, up to where the answer begins; `app.helper.templates.answer` adapts the chat.

        Raises `KnownError` when the template fails, leaves out words of the user, doesn't declare one of the variables,
        or exceeds the time, the memory or the 16 MB of text that a request may take.
        """
        inputs = inputs or TemplateInputs(datetime.now())
        if unknown := sorted(inputs.variables.keys() - self.variables):
            raise KnownError(f"The model's chat template has no variable “{unknown[0]}” that can be set.")
        plain = [_shown(one, text_arguments=inputs.text_arguments) for one in chat]
        now, variables, tools = inputs.now.isoformat(), inputs.variables, list(map(definition, inputs.tools))
        request = helper_messages.RenderTemplate(self.source, self._bos, self._eos, plain, now, variables, tools)
        return _asked(self._helper, request).text

    def attempt(self, *chat: Message, **inputs: Any) -> str | None:
        """`render` to find out what the template writes, at a fixed time; ``None`` where it refuses."""
        try:
            return self.render(chat, TemplateInputs(_TRIED_AT, **inputs))
        except KnownError:
            return None

    def forget(self) -> None:
        """End the process that rendered it: messages may still be in its memory."""
        self._helper.stop()


def _shown(message: Message, *, text_arguments: bool) -> helper_messages.Message:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments if text_arguments else json.loads(call.arguments),
            },
        }
        for call in message.tool_calls
    ]
    return helper_messages.Message(
        message.role, message.content, message.thinking, calls, message.tool_call_id, message.tool_name
    )


def _asked(process: helper.Helper, request: helper_messages.Request[Answer | helper_messages.TemplateFailed]) -> Answer:
    try:
        answer = process.ask(request)
    except helper.HelperError as error:
        raise _known(error) from error
    if isinstance(answer, helper_messages.TemplateFailed):
        raise UnusableTemplateError(_REASONS[answer.reason].format(detail=answer.detail))
    return answer


def _known(error: helper.HelperError) -> KnownError:
    match error:
        case helper.TookTooLong():
            return UnusableTemplateError(f"didn't finish within {words.number(helper.TIME_LIMIT_SECONDS)} seconds")
        case helper.TooMuchMemory():
            return UnusableTemplateError(f"needs more than {helper.MEMORY_LIMIT // 2**20} MB of memory")
        case helper.NotStarted():
            return KnownError(
                f"The process that reads chat templates couldn't be started ({error}). "
                "Close other programs and try again."
            )
        case _:
            return KnownError(
                "The process that reads chat templates ended unexpectedly, so there is no answer. "
                "Try again; if it keeps happening, choose another chat template where you open the model."
            )


def _turns(begins: str, goes_on: str, ends: str, role: str = "message.role", answerer: str = "assistant") -> str:
    """A template in which all turns look alike, with the role between the first two marks."""
    turns = f"{begins}{{{{ {role} }}}}{goes_on}{{{{ message.content }}}}{ends}"
    answer = f"{begins}{answerer}{goes_on}"
    return f"{{% for message in messages %}}{turns}{{% endfor %}}{{% if add_generation_prompt %}}{answer}{{% endif %}}"


_GEMMAS_ROLE = (
    "'model' if message.role == 'assistant' else 'user' if message.role == 'user' else raise_exception('no such role')"
)
_GEMMA = "{{ bos_token }}" + _turns("<start_of_turn>", "\n", "<end_of_turn>\n", _GEMMAS_ROLE, "model")
_LLAMA3 = "{{ bos_token }}" + _turns("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")
BUILT_IN: dict[GeneralTemplate, tuple[str, str]] = {
    "chatml": (CHATML, "<|im_start|>"),
    "gemma": (_GEMMA, "<start_of_turn>"),
    "llama3": (_LLAMA3, "<|start_header_id|>"),
    "phi3": (_turns("<|", "|>\n", "<|end|>\n"), "<|assistant|>"),
}
"""General templates, each with a token of the models that were made for it."""
_TURN_ENDS = ("<|im_end|>", "<|im_start|>", "<end_of_turn>", "<start_of_turn>", "<|eot_id|>", "<|end|>", "<|user|>")
_LONGEST_FILE = 1 << 20
_TOOL_USE = "tool_use"
_TRIAL = [Message(role="user", content="What is the highest mountain?")]


@dataclass(frozen=True)
class Templates:
    """What a model is used with, and where that is from."""

    kind: TemplateKind
    usual: ChatTemplate
    with_tools: ChatTemplate
    """Often the same."""
    refused: str | None
    """Why the ones that should be used aren't, for the user."""
    stops: list[str]
    """Ends of turns that are plain text for this model, so that they have to be stop strings."""


def choose(vocabulary: Vocabulary, choice: str, marks: Collection[str]) -> Templates:
    """``choice``: a name in `BUILT_IN` or the path of a file, to be used instead of the model's own; empty: none.
    ``marks``: the texts of the model's special tokens. Raises `KnownError` if nothing can be rendered."""
    reasons: list[str] = []
    texts = vocabulary.special_text("bos"), vocabulary.special_text("eos")
    for kind, sources in _candidates(vocabulary, choice, marks, reasons):
        try:
            usual = _tried(sources[""], texts)
        except UnusableTemplateError as error:
            whose = "The chosen" if kind == "file" else "The model's own"
            reasons.append(f"{whose} chat template {error.reason}.")
            continue
        stops = [mark for mark in _TURN_ENDS if mark in sources[""] and mark not in marks]
        with_tools = usual
        if _TOOL_USE in sources:
            with contextlib.suppress(UnusableTemplateError):
                with_tools = _tried(sources[_TOOL_USE], texts)
        refused = f"{' '.join(reasons)} {_instead(kind)}" if reasons else None
        return Templates(kind, usual, with_tools, refused, stops)
    raise KnownError(" ".join(reasons))


def _candidates(
    vocabulary: Vocabulary, choice: str, marks: Collection[str], reasons: list[str]
) -> Iterator[tuple[TemplateKind, dict[str, str]]]:
    """Templates by name, the best first; the usual one has the empty name."""
    built_in = {kind: {"": source} for kind, (source, _) in BUILT_IN.items()}
    if kind := next((kind for kind in built_in if kind == choice), None):
        yield kind, built_in[kind]
    elif choice:
        try:
            with Path(choice).open("rb") as file:
                source = file.read(_LONGEST_FILE).decode("utf-8-sig", "replace")
            yield "file", _named(source)
        except OSError as error:
            reasons.append(f"The chosen chat template can't be read ({error.strerror or error}).")
    own, for_tools = vocabulary.chat_template(), vocabulary.chat_template(_TOOL_USE)
    if own or for_tools:
        yield "model", _named(own or for_tools or "") | ({_TOOL_USE: for_tools} if for_tools else {})
        yield from ((kind, built_in[kind]) for kind, (_, mark) in BUILT_IN.items() if mark in marks)
    yield "chatml", built_in["chatml"]


def _named(source: str) -> dict[str, str]:
    """By name: a file may have a JSON list of named templates."""
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        found = {str(one["name"]): str(one["template"]) for one in json.loads(source)}
        if found:
            return {**found, "": found.get("default", next(iter(found.values())))}
    return {"": source}


def _tried(source: str, texts: tuple[str, str]) -> ChatTemplate:
    template = ChatTemplate(source, *texts)
    template.render(_TRIAL)
    return template


def _instead(kind: TemplateKind) -> str:
    if kind == "model" or kind == "file":
        return "The model's own is used instead."
    return f"The {TEMPLATE_TITLES[kind]} template is used instead. If answers look wrong, choose another one."
