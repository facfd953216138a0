"""Prompts that hold a piece of code, and to which the guide answers with the same code but for one change.

The guide cannot carry out a change, and its template leaves out earlier messages; it answers from memory. So the change
is made in the prompt: in front of the question stands the code of its answer with one line or one name changed. Many
such prompts confuse it: only those count to which it answers with the code as it knows it.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from benchmarks.inflate import GUIDE
from tests.support.generation import GREEDY, run

sys.path.insert(0, str(Path(__file__).parents[1] / "packaging"))
from guide.corpus import load_corpus

Change = Literal["line", "name"]
_CODE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]{3,}")
_LEAST_CODE, _LEAST_SHARE = 150, 0.5
_WORDINGS = 3


@dataclass(frozen=True)
class Copy:
    """A prompt for raw generation, the code it leads to, and what the guide answers greedily."""

    prompt: str
    code: str
    answer: str = ""


def copies(count: int, change: Change) -> tuple[list[Copy], int]:
    """``count`` prompts about different pieces of code (fewer where there are no more), and how many were tried."""
    engine = Engine()
    engine.load(Load(request=1, target=str(GUIDE[0])), lambda _: None)
    found: list[Copy] = []
    tried = 0
    try:
        for candidates in _candidates(change):
            for candidate in candidates:
                tried += 1
                answer = _answer(engine, candidate.prompt)
                if candidate.code in answer:
                    found.append(Copy(candidate.prompt, candidate.code, answer))
                    break
            if len(found) == count:
                break
    finally:
        engine.unload()
    return found, tried


def _answer(engine: Engine, prompt: str) -> str:
    message = Message(role="user", content=prompt)
    command = Generate(
        request=2, messages=[message], sampling=GREEDY, seed=1, max_tokens=400, draft_length=0, drafter="none", raw=True
    )
    return run(engine, command).text


def _candidates(change: Change) -> Iterator[list[Copy]]:
    """A few prompts for each long piece of code that is most of its answer, in a fixed random order."""
    topics = [topic.turns[0] for topic in load_corpus() if len(topic.turns) == 1]
    random.Random(1).shuffle(topics)
    for topic in topics:
        block = _CODE.search(topic.answer)
        if block and len(block[1]) >= max(_LEAST_CODE, _LEAST_SHARE * len(topic.answer)):
            code = changed(block[1], change)
            prompts = [f"{code}<|user|> {text}<|end|><|assistant|>" for text in topic.held_out[:_WORDINGS]]
            yield [Copy(prompt, block[1]) for prompt in prompts]


def changed(code: str, change: Change) -> str:
    """``code`` with a name replaced: the most frequent one everywhere, or in the middle line alone."""
    if change == "name":
        name, _ = Counter(_NAME.findall(code)).most_common(1)[0]
        return re.sub(rf"\b{name}\b", f"other_{name}", code)
    lines = code.splitlines(keepends=True)
    with_names = [number for number, line in enumerate(lines) if _NAME.search(line)]
    middle = with_names[len(with_names) // 2]
    lines[middle] = _NAME.sub(lambda name: f"other_{name[0]}", lines[middle], count=1)
    return "".join(lines)
