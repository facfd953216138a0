"""Prompts of many kinds, composed of our own words: the same seed gives the same ones."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Messages = tuple[tuple[str, str], ...]
"""Role and text of each."""

SHARES = {
    "question": 18, "writing": 12, "list": 9, "structured": 5, "code": 9, "snippet": 4, "problem": 11,
    "german": 9, "translation": 4, "rewriting": 7, "reading": 7, "retrieval": 5, "chat": 8,
}  # fmt: skip
"""How often each kind comes, in percent or so."""
HELD_OUT = 20
"""One topic in so many is never trained on."""
OVERLAP_WORDS = 8
"""A prompt that shares so many consecutive words with a forbidden text is left out."""


def _lists() -> dict[str, list[str]]:
    """The lists of words.txt by their names."""
    found: dict[str, list[str]] = {}
    text = Path(__file__).with_name("words.txt").read_text(encoding="utf-8")
    for part in text.split("\n[")[1:]:
        name, _, body = part.partition("]\n")
        items = body.split("\n###\n") if name == "SNIPPETS" else body.splitlines()
        found[name] = [item.strip("\n") for item in items if item.strip()]
    return found


LISTS = _lists()
TOPICS = LISTS["TOPICS"]


@dataclass(frozen=True)
class Prompt:
    """What is asked, and of which kind it is."""

    kind: str
    messages: Messages


class Composer:
    """Composes prompts; `texts` are answers that came before: some prompts are about one of them."""

    def __init__(self, seed: int, *, held_out: bool = False, forbidden: frozenset[tuple[str, ...]] = frozenset()):
        self._random = random.Random(seed)
        self._topics = [topic for index, topic in enumerate(TOPICS) if (index % HELD_OUT == 7) == held_out]
        self._forbidden = forbidden
        self._seen: set[Messages] = set()
        self.texts: list[tuple[Messages, str, str]] = []
        """What was asked, the topic's words and the answer."""

    def compose(self) -> Prompt:
        """One that hasn't come before."""
        while True:
            kind = self._random.choices(list(SHARES), list(SHARES.values()))[0]
            prompt = self._compose(kind)
            if prompt and prompt.messages not in self._seen and not self._is_forbidden(prompt.messages):
                self._seen.add(prompt.messages)
                return prompt

    def _is_forbidden(self, messages: Messages) -> bool:
        return any(grams(text) & self._forbidden for role, text in messages if role == "user")

    def _compose(self, kind: str) -> Prompt | None:
        if kind in ("reading", "retrieval", "chat"):
            return self._about_text(kind) if len(self.texts) > 3 else None
        text = {"code": self._code, "snippet": self._snippet}.get(kind, lambda: self._plain(kind))()
        return Prompt(kind, (("user", self._dressed(text) if kind in ("question", "writing", "list") else text),))

    def _one(self, name: str) -> str:
        return self._random.choice(LISTS[name])

    def _plain(self, kind: str) -> str:
        source = {"question": "QUESTIONS", "writing": "WRITING", "list": "LISTS", "structured": "STRUCTURED"}
        if kind in source:
            return self._filled(self._one(source[kind]))
        if kind == "problem":
            return self._filled(self._one("PROBLEMS"))
        if kind == "german":
            form = self._random.choice(
                ("Translate German to English: {}", "Translate to English: {}", "{} - what does this mean in English?")
            )
            return form.format(self._german())
        if kind == "translation":
            return f"Translate to {self._one('TARGETS')}: {self._filled(self._one('PHRASES'))}"
        return self._rewriting()

    def _german(self) -> str:
        values = {"n": self._one("NAMES"), "o": self._one("GERMAN_PLACES"), "x": self._one("GERMAN_THINGS")}
        values |= {
            "w": self._one("GERMAN_DAYS"),
            "a": str(self._random.randint(3, 90)),
            "b": str(self._random.randint(2, 24)),
        }
        return self._one("GERMAN").format(**values)

    def _rewriting(self) -> str:
        sentence, more = self._filled(self._one("SENTENCES")), self._filled(self._one("SENTENCES"))
        wrong = self._filled(self._one("ERRORS"))
        form = self._one("REWRITES").replace("{s}", sentence).replace("{r}", more).replace("{e}", wrong)
        return self._filled(form)

    def _code(self) -> str:
        return self._one("CODE_FORMS").format(c=self._one("CODE"), l=self._one("LANGUAGES"))

    def _snippet(self) -> str:
        form = self._one("SNIPPET_FORMS").format(l=self._one("LANGUAGES"))
        code = re.sub(r"\b(items|prices|words|users|numbers)\b", self._one("THINGS"), self._one("SNIPPETS"))
        return self._random.choice((f"{form}\n\n```\n{code}\n```", f"{code}\n\n{form}"))

    def _filled(self, form: str) -> str:
        topic, other = self._random.sample(self._topics, 2)
        name, friend = self._random.sample(LISTS["NAMES"], 2)
        a, b, c = self._random.randint(3, 60), self._random.randint(2, 12), self._random.randint(2, 9)
        values = {"t": topic, "u": other, "n": name, "m": friend, "x": self._one("THINGS"), "o": self._one("PLACES")}
        for key, value in (values | {"a": str(a), "b": str(b), "c": str(c), "d": str(a * b + c)}).items():
            form = form.replace("{" + key + "}", value)
        return form

    def _dressed(self, text: str) -> str:
        """As different people would put it."""
        draw = self._random.random()
        if draw < 0.08:
            return text.lower().rstrip(".?")
        if draw < 0.13:
            return f"Hi! {text} Thanks."
        endings = (
            "Be brief.",
            "Answer in one paragraph.",
            "Please give examples.",
            "Use simple words.",
            "Use at most 50 words.",
        )
        return f"{text} {self._random.choice(endings)}" if draw < 0.3 else text

    def _about_text(self, kind: str) -> Prompt:
        asked, topic, answer = self._random.choice(self.texts[-400:])
        if kind == "chat":
            return Prompt(kind, (*asked, ("assistant", answer), ("user", self._filled(self._one("FOLLOW_UPS")))))
        form = self._one("READING")
        if kind == "retrieval":
            form = self._one("ASKED").replace("{t}", topic)
            answer = "\n\n".join((answer, self._random.choice(self.texts[-400:])[2]))
        return Prompt(kind, (("user", self._random.choice((f"{form}\n\n{answer}", f"{answer}\n\n{form}"))),))

    def remember(self, prompt: Prompt, answer: str) -> None:
        """Keep a finished `answer`: later prompts may be about it."""
        topic = next((topic for topic in self._topics if topic in prompt.messages[0][1]), "this")
        if len(answer) > 200 and len(prompt.messages) == 1 and prompt.kind in ("question", "writing", "list", "code"):
            self.texts.append((prompt.messages, topic, answer))
            self.texts = self.texts[-1000:]


def grams(text: str) -> frozenset[tuple[str, ...]]:
    """All runs of `OVERLAP_WORDS` words in it, in lower case."""
    parts = re.findall(r"\w+", text.lower())
    return frozenset(tuple(parts[start : start + OVERLAP_WORDS]) for start in range(len(parts) - OVERLAP_WORDS + 1))


def forbidden(texts: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """What no prompt may share with these texts, such as the questions of a benchmark."""
    return frozenset().union(*(grams(text) for text in texts))
