"""Which chat templates a model is used with: those of its file, one that was chosen instead, or a general one where the
file has none that works.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.engine.decoding.chat_template import CHATML, ChatTemplate, UnusableTemplateError
from app.errors import KnownError
from app.protocol.commands import Message
from app.protocol.options import TEMPLATE_TITLES, GeneralTemplate, TemplateKind


def _turns(begins: str, goes_on: str, ends: str, role: str = "message.role", answerer: str = "assistant") -> str:
    """A template in which turns look alike; the role of each stands between the first two marks."""
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
"""General templates, each with a token that models have which were made for it."""
_TURN_ENDS = ("<|im_end|>", "<|im_start|>", "<end_of_turn>", "<start_of_turn>", "<|eot_id|>", "<|end|>", "<|user|>")
_LONGEST_FILE = 1 << 20
_TOOL_USE = "tool_use"
_TRIAL = [Message(role="user", content="What is the highest mountain?")]


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.model.Model`."""

    def chat_template(self, name: str = "") -> str | None: ...
    def special_text(self, which: str) -> str: ...


@dataclass(frozen=True)
class Templates:
    """What a model is used with.

    Attributes:
        kind: Where they are from.
        usual: For chats.
        with_tools: For chats with tools; often the same.
        refused: Why not those that should be used, for the user.
        stops: Ends of turns that are plain text for this model, so that they have to stop its answers as strings.
    """

    kind: TemplateKind
    usual: ChatTemplate
    with_tools: ChatTemplate
    refused: str | None
    stops: list[str]


def choose(vocabulary: Vocabulary, choice: str, marks: Collection[str]) -> Templates:
    """``choice``: the name of a template in `BUILT_IN` or the path of a file, to be used instead of the model's own;
    empty: none. ``marks``: the texts of the model's special tokens.

    Raises `KnownError` where nothing can be rendered at all.
    """
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
    """Templates by their names, the usual one without; the best first."""
    built_in = {kind: {"": source} for kind, (source, _) in BUILT_IN.items()}
    if kind := next((kind for kind in built_in if kind == choice), None):
        yield kind, built_in[kind]
    elif choice:
        try:
            yield "file", _named(_read(Path(choice)))
        except OSError as error:
            reasons.append(f"The chosen chat template can't be read ({error.strerror or error}).")
    own, for_tools = vocabulary.chat_template(), vocabulary.chat_template(_TOOL_USE)
    if own or for_tools:
        yield "model", _named(own or for_tools or "") | ({_TOOL_USE: for_tools} if for_tools else {})
        yield from ((kind, built_in[kind]) for kind, (_, mark) in BUILT_IN.items() if mark in marks)
    yield "chatml", built_in["chatml"]


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST_FILE).decode("utf-8-sig", "replace")


def _named(source: str) -> dict[str, str]:
    """A file may have a list of templates with names, in JSON."""
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
