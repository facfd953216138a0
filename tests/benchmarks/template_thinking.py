"""What chat templates do about thinking: how they begin an answer, by which variables that changes, what stays of it.

    python -m tests.benchmarks.template_thinking FOLDER

The values that are tried are those the template compares its variable with, besides true and false. What is shown is
the end of the prompt. No model and no server are needed.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from pathlib import Path

from app.engine.decoding.chat_template import ChatTemplate, TemplateInputs
from app.errors import KnownError
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables

QUESTION = "How does a tidewheel pump water?"
THOUGHT, ANSWER = "THE-THOUGHT", "THE-ANSWER"
CHAT = [Message(role="user", content=QUESTION)]
EARLIER = [
    Message(role="user", content="And so?"),
    Message(role="assistant", content=ANSWER, thinking=THOUGHT),
    *CHAT,
]
_NAMES = re.compile("think|thought|reason|effort|budget")
_SHOWN = 60


def _prompt(template: ChatTemplate, variables: TemplateVariables, chat: list[Message] = CHAT) -> str:
    try:
        return template.render(chat, TemplateInputs(datetime(2026, 11, 23), variables))
    except KnownError as error:
        return f"{QUESTION}refused: {error}"


def _values(source: str, name: str) -> list[bool | int | str]:
    """What may be worth trying."""
    found = re.findall(rf"\b{name}(?: \| lower)?\s*[=!]=\s*['\"](\w+)['\"]", source)
    lists = re.findall(rf"\b{name}\s+(?:not )?in\s*\[([^\]]*)\]", source)
    found += [value for one in lists for value in re.findall(r"['\"](\w+)['\"]", one)]
    return [True, False, *([0, 512] if "budget" in name else []), *sorted(set(found))]


def describe(source: str) -> list[str]:
    """Lines about one template; none where it knows no thinking."""
    template = ChatTemplate(source, "<s>", "</s>")
    names = sorted(name for name in template.variables if _NAMES.search(name))
    if not names and not re.search("think|reasoning", source):
        return []
    plain = _prompt(template, {})
    end = plain.rpartition(QUESTION)[2]
    lines = [f"an answer begins behind {end[-_SHOWN:]!r}"]
    for name in names:
        for value in _values(source, name):
            other = _prompt(template, {name: value})
            other_end = other.rpartition(QUESTION)[2]
            change = repr(other_end[-_SHOWN:]) if other_end != end else "before the question"
            lines.append(f"{name}={value!r}: {'no change' if other == plain else change}")
    before = _prompt(template, {}, EARLIER).partition(ANSWER)[0]
    lines.append(f"earlier thinking {'stays' if THOUGHT in before else 'leaves'}: {before[-_SHOWN:]!r}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    for file in sorted(parser.parse_args().folder.glob("*.jinja")):
        if lines := describe(file.read_text(encoding="utf-8")):
            print(file.name, *lines, sep="\n    ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
