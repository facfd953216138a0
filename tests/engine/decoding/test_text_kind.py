"""What an answer's text is at each place, however it is cut into tokens."""

from __future__ import annotations

import random

import pytest

from app.engine.decoding.text import TextKinds
from app.engine.host.engine import Engine
from tests.support.generation import GREEDY, ask, run
from tests.support.pairs import Loader, Pair

FENCED = "Here is it:\n\n```python\nprint(1)\n\n- no list\n```\nThat was it."
NESTED = "````markdown\n```python\nx = 1\n```\nstill code\n````\nprose again"
TILDES = "~~~ sh\nls ``` -l\n```\n~~~\nprose"
UNCLOSED = "```js\nlet a = 1;\n"
LIST = "Three fruits:\n- apples\n- pears,\nyellow ones\n\n  also green ones\n* **plums**\n\nThat is all."
NUMBERED = "1. First\n2) Second\n\n10. Tenth\n\n2024 was good"
JSON = '{\n  "a": [1, 2],\n  "b": {}\n}\n\nThat is the file.'
JSON_LINES = '{"a": 1}\n{"a": 2}\nTwo lines.'
IN_LIST = "1. Install:\n   ```bash\n   pip install x\n   ```\n2. Run it\n\nDone"
INDENTED = "Type this:\n\n    ls -l\n\n    pwd\nand go on"
DEEP_LIST = "- a\n    - b\n\n    still in the list\n\nprose"
EVERYTHING = [
    FENCED,
    NESTED,
    TILDES,
    UNCLOSED,
    LIST,
    NUMBERED,
    JSON,
    JSON_LINES,
    IN_LIST,
    INDENTED,
    DEEP_LIST,
    "```not a fence``` but prose\n1 apple\n**bold**\n---\n# Heading\n| a | b |\n",
    "[1] A source\n{name} and [a link](x)\n<thin line>\n``\n`code` first\n~5\n",
]


def kinds(text: str) -> list[str]:
    """The kind behind each character."""
    tracker = TextKinds()
    found: list[str] = []
    for letter in text:
        tracker.add(letter)
        found.append(tracker.kind)
    return found


def kind_behind(text: str, words: str) -> str:
    return kinds(text)[text.index(words) + len(words) - 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FENCED, {"Here is": "prose", "```p": "code", "print": "code", "- no": "code", "That": "prose"}),
        (NESTED, {"x = 1": "code", "still": "code", "prose": "prose"}),
        (TILDES, {"~~~": "code", "-l": "code", "prose": "prose"}),
        (UNCLOSED, {"let a": "code", "1;\n": "code"}),
        (
            LIST,
            {
                "Three": "prose",
                "- ": "list",
                "yellow": "list",
                "also": "list",
                "* **p": "list",
                "T": "prose",
                "That": "prose",
            },
        ),
        (NUMBERED, {"1. ": "list", "2) S": "list", "10. T": "list", "2024 w": "prose"}),
        (JSON, {"{\n": "code", '"b"': "code", "That": "prose"}),
        (JSON_LINES, {'{"a": 1': "code", '{"a": 2': "code", "Two": "prose"}),
        (IN_LIST, {"Install": "list", "pip": "code", "2. ": "list", "Run": "list", "Done": "prose"}),
        (INDENTED, {"Type": "prose", "ls": "code", "pwd": "code", "and": "prose"}),
        (DEEP_LIST, {"b": "list", "still": "list", "prose": "prose"}),
    ],
)
def test_kinds_of_text(text: str, expected: dict[str, str]) -> None:
    assert {words: kind_behind(text, words) for words in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "```not a fence``` but prose",
        "1 apple",
        "3.14 is enough",
        "**bold** words",
        "-5 degrees",
        "`code` in a sentence",
        "[1] says so",
        "[a link](x) and more",
        "{name}",
        "<thin line>",
        "# Heading",
        "| a | b |",
        "~5 apples",
    ],
)
def test_lines_that_only_look_like_something_else(line: str) -> None:
    assert kinds(f"{line}\nx")[len(line) :] == ["prose", "prose"]


@pytest.mark.parametrize("text", EVERYTHING)
def test_tokens_may_be_cut_anywhere(text: str) -> None:
    by_letter = kinds(text)
    rng = random.Random(text)
    for _ in range(30):
        tracker, at = TextKinds(), 0
        while at < len(text):
            size = rng.choice((1, 2, 3, 5, 8, 60))
            tracker.add(text[at : at + size])
            at = min(at + size, len(text))
            assert tracker.kind == by_letter[at - 1], text[:at]


def test_a_random_text_never_breaks_it() -> None:
    rng = random.Random(5)
    signs = ["`", "```", "~", "\n", "\n\n", "- ", "1", ". ", "{", "}", '"', "x", " ", "    "]
    for _ in range(200):
        text = "".join(rng.choices(signs, k=80))
        assert set(kinds(text)) <= {"prose", "code", "list"}


@pytest.mark.parametrize("stop", [["`"], ["It prints", "\n    return"]])
def test_each_round_of_an_answer_says_what_the_text_was_when_it_began(
    engine: Engine, load: Loader, guide_pair: Pair, stop: list[str]
) -> None:
    load(*guide_pair)
    question = "Write a Python function that reverses a string"
    answer = run(engine, ask(question, draft_length=4, sampling=GREEDY, stop=stop))
    tracker = TextKinds()
    for round_ in answer.rounds:
        assert round_.kind == tracker.kind or not round_.tokens
        for piece in round_.pieces:
            tracker.add(piece.text)
    kinds = {figures.kind for figures in answer.finished.figures.kinds}
    assert kinds == ({"prose"} if stop == ["`"] else {"prose", "code"})
    assert engine._costs and set(engine._costs.history.priors("coupled")["model"]) == kinds  # the policy was told
