"""What `benchmarks.auto` asks: prompts by kind of text, and those where drafts are worth little.

| set | what it is |
|---|---|
| prose, code, json, list, table, story | the guide's held-out questions |
| tale | beginnings of stories, for models without a chat template |
| copied line, copied name | the code of the answer stands in the prompt with one change; n-grams alone draft |
| noise | random characters, gone on with at temperature 1.5 without filters |
| foreign | questions about other things, answered like noise |
| stranger | usual questions with a draft model whose weights are shuffled |
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

from app.protocol.commands import Generate, Message
from app.protocol.options import DrafterChoice, Sampling
from benchmarks.copying import Change, copies
from benchmarks.peer import KINDS, wordings
from tests.support.generation import GREEDY

LENGTHS = (1, 2, 3, 5, 8, 12, 16)
"""Fixed draft lengths that are tried."""
_ANYTHING = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
_FOREIGN = (
    "Wie heißt die Hauptstadt von Frankreich, und wie viele Menschen leben dort?",
    "Who won the football world cup in 1998, and who scored in the final?",
    "Écris-moi un poème sur la mer en hiver.",
    "What is the boiling point of ethanol at an altitude of three kilometres?",
    "Name five rivers in South America and the countries they flow through.",
    "Translate into Spanish: the cat sleeps on the warm roof.",
)
_TALES = (
    "Once upon a time there was a little girl named Lily.",
    "One day a boy went to the park with his dog.",
    "The big bear was sad because",
    "Tom and his mom made a cake. They",
    "There was a small bird who could not fly.",
    "It was a sunny day and the kids",
)
_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:!?()[]{}<>=+-*/_#\"'\n"


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one kind of text."""

    name: str
    commands: list[Generate]
    lengths: tuple[int, ...] = LENGTHS
    stranger: bool = False
    """The draft is one with shuffled weights."""
    drafter: DrafterChoice = "auto"
    answers: tuple[str, ...] = ()
    """What the plain answers begin, else the prompt does not count; empty where any answer will do."""


@dataclass(frozen=True)
class Maker:
    """Makes sets of ``count`` prompts, answered with at most ``max_tokens`` tokens."""

    count: int
    max_tokens: int
    sampling: Sampling
    has_template: bool

    def sets(self) -> dict[str, Callable[[], PromptSet]]:
        """All there are for this kind of model, by name; made when they are called."""
        if self.has_template:
            usual = {kind: partial(self._usual, kind) for kind in KINDS}
            usual |= {f"copied {change}": partial(self._copied, change) for change in get_args(Change)}
        else:
            usual = {"tale": partial(self._usual, "tale")}
        return {**usual, "noise": self._noise, "foreign": self._foreign, "stranger": self._stranger}

    def _command(self, text: str, sampling: Sampling, raw: bool) -> Generate:
        message = Message(role="user", content=text)
        return Generate(request=2, messages=[message], sampling=sampling, seed=1, max_tokens=self.max_tokens, raw=raw)

    def _commands(self, texts: tuple[str, ...] | list[str], sampling: Sampling) -> list[Generate]:
        raw = not self.has_template
        return [self._command(texts[i % len(texts)], sampling, raw) for i in range(self.count)]

    def _usual(self, kind: str) -> PromptSet:
        texts = wordings(self.count)[kind] if self.has_template else _TALES
        return PromptSet(kind, self._commands(texts, self.sampling))

    def _copied(self, change: Change) -> PromptSet:
        found, tried = copies(self.count, change)
        print(f"copied {change}: {len(found)} of {tried} prompts lead to the code", file=sys.stderr)
        commands = [self._command(copy.prompt, GREEDY, True) for copy in found]
        answers = tuple(copy.answer for copy in found)
        return PromptSet(f"copied {change}", commands, drafter="ngram", answers=answers)

    def _noise(self) -> PromptSet:
        texts = ["".join(random.Random(seed).choices(_CHARACTERS, k=60)) for seed in range(self.count)]
        return PromptSet("noise", [self._command(text, _ANYTHING, True) for text in texts], ())

    def _foreign(self) -> PromptSet:
        return PromptSet("foreign", self._commands(_FOREIGN if self.has_template else _TALES, _ANYTHING), ())

    def _stranger(self) -> PromptSet:
        texts = wordings(self.count)["prose"] if self.has_template else _TALES
        return PromptSet("stranger", self._commands(texts, self.sampling), (), stranger=True)
