"""Thinking and answer told apart, however the text is cut into tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

import pytest

from app.engine.decoding.text import TextStream, TokenTexts, answer_text
from app.engine.decoding.thinking import Marks
from app.engine.decoding.thinking_splitters import FORMATS
from app.protocol.events import Piece
from tests.support.vocabulary import FakeVocabulary

HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
GEMMA = ("<|channel>", "<channel|>")
KIMI = ("<|open|>", "<|close|>", "<|sep|>")
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"


STEPS = "Here are my reasoning steps:"
WRAPS = "Write your response between <response></response>."


class Letters(FakeVocabulary):
    """A vocabulary of single bytes, and of some marks behind them."""

    def __init__(self, *marks: str, template: str = "") -> None:
        """``template``: what the chat template says."""
        self._marks = marks
        self.template = template

    def tokenize(self, text: str, *, special: bool, bos: bool = False) -> list[int]:  # noqa: ARG002
        pattern = f"({'|'.join(map(re.escape, self._marks))})" if special and self._marks else "($^)"
        parts = re.split(pattern, text)
        return [token for part in parts for token in self._tokens(part)]

    def _tokens(self, part: str) -> list[int]:
        return [256 + self._marks.index(part)] if part in self._marks else list(part.encode())

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else self.mark(token).encode()

    def mark(self, token: int) -> str:
        return self._marks[token - 256] if token >= 256 else ""


@cache
def marks_of(vocabulary: Letters) -> Marks:
    return Marks(vocabulary, vocabulary.template)


class Told:
    """What is told of an answer."""

    def __init__(
        self,
        vocabulary: Letters,
        answer: str | Sequence[int],
        prompt: str = "",
        *,
        stops: Sequence[str] = (),
        continued: Sequence[int] = (),
        cut: bool = False,
    ) -> None:
        tokens = vocabulary.tokenize(answer, special=True) if isinstance(answer, str) else answer
        texts = TokenTexts(vocabulary.piece, marks_of(vocabulary), vocabulary.tokenize(prompt, special=True))
        stream = TextStream(texts, stops, continued)
        self.pieces: list[Piece] = []
        self.states: list[bool] = []
        for token in tokens:
            self.pieces += stream.add(Piece(text="", id=token))
            self.states.append(texts.splitter.thinking)
            if stream.met_stop:
                break
        else:
            self.pieces += stream.end(cut=cut)
        assert [piece.id for piece in self.pieces] == list(tokens)[: len(self.pieces)]
        assert len(self.pieces) == len(self.states)

    @property
    def thinking(self) -> str:
        return "".join(piece.text for piece in self.pieces if piece.thinking)

    @property
    def answer(self) -> str:
        return "".join(map(answer_text, self.pieces))

    @property
    def both(self) -> tuple[str, str]:
        return self.thinking, self.answer


@pytest.mark.parametrize("as_tokens", [True, False])
@pytest.mark.parametrize("form", [one for one in FORMATS if not one.tokens_only], ids=lambda form: form.opening)
def test_tags_that_are_tokens_or_text(form: object, as_tokens: bool) -> None:
    opening, closing = form.opening, form.closing  # type: ignore[attr-defined]
    vocabulary = Letters(opening, closing) if as_tokens else Letters(template=f"{{{{ {opening} … {closing} }}}}")
    assert Told(vocabulary, f"{opening}\nHm. So\n{closing}\n\nYes.").both == ("Hm. So", "Yes.")
    assert Told(vocabulary, f"Hm. So{closing}Yes.", f"User: x\n{opening}").both == ("Hm. So", "Yes.")
    assert Told(vocabulary, f"Hm. So\n{closing}Yes.", f"User: x\n{opening}\n").both == ("Hm. So", "Yes.")
    assert Told(vocabulary, "Yes.", f"User: x\n{opening}\n\n{closing}\n\n").both == ("", "Yes.")


@pytest.mark.parametrize(
    ("vocabulary", "prompt", "answer", "expected"),
    [
        (Letters(*GEMMA), "", "<|channel>thought\nHm\n<channel|>Yes", ("Hm", "Yes")),
        (Letters(*GEMMA), "x\n<|channel>thought\n<channel|>", "Yes", ("", "Yes")),
        (Letters(*KIMI), "<|open|>think<|sep|>", "Hm<|close|>think<|sep|><|open|>response<|sep|>Yes", ("Hm", "Yes")),
        (
            Letters(*KIMI),
            "<|open|>response<|sep|>",
            "Yes<|close|>response<|sep|><|close|>message<|sep|>",
            ("", "Yes"),
        ),
        (Letters(*HARMONY), "<|start|>assistant", f"<|channel|>analysis<|message|>Hm{FINAL}Yes", ("Hm", "Yes")),
        (Letters(*HARMONY), "<|start|>assistant", "<|channel|>final<|message|>Yes", ("", "Yes")),
        (Letters(*HARMONY), "<|start|>assistant", "<|message|>Yes", ("", "Yes")),
        (
            Letters(*HARMONY),
            "<|start|>assistant",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final "
            "<|constrain|>json<|message|>d",
            ("a\n\nc", "b\n\nd"),
        ),
        (
            Letters(*HARMONY),
            "<|start|>assistant",
            "no header, just a line\nof text",
            ("", "no header, just a line\nof text"),
        ),
        (Letters(*HARMONY), "<|end|>", "Yes", ("", "Yes")),
        (Letters(template=WRAPS), "", "<think>a</think>\n<response>b</response>", ("a", "b")),
        (Letters(), "", "<think>a</think>\n<response>b</response>", ("a", "<response>b</response>")),
        (Letters(), "", "\n <think>a</think>\n  b", ("a", "  b")),
        (Letters(), "", "<think>a</think>\n<think>b</think>c", ("a\n\nb", "c")),
    ],
)
def test_forms_of_thinking(vocabulary: Letters, prompt: str, answer: str, expected: tuple[str, str]) -> None:
    assert Told(vocabulary, answer, prompt).both == expected


@pytest.mark.parametrize(
    "answer",
    [
        "Say <think> to begin",
        "a\n<think>b</think>",
        "<thin line>",
        " \n<",
        "</think> alone",
        "```\n<think>\n```",
        "<|channel>thought\nwithout such a token",
        "<|channel|>analysis<|message|>spelled",
        "  indented",
    ],
)
def test_text_that_is_no_thinking(answer: str) -> None:
    assert Told(Letters(), answer).both == ("", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "<reason>It rains.</reason>",
        "<thought>\nA poem\n</thought>\n<verse>…</verse>",
        "<reasoning>1</reasoning><result>2</result>",
        "<thinking>Hm.</thinking>So.",
        "[THINK]Hm.[/THINK]So.",
        "<think>\n<think>\n<think>",
        "<think>\n  <think>\n</think>\n</think>",
        "<think>",
    ],
)
def test_elements_of_xml_and_lists_of_marks_are_text(answer: str) -> None:
    assert Told(Letters(), answer).both == ("", answer)


def test_what_a_grammar_spells_is_the_answer() -> None:
    answer, spelled = "<think>a</think>", Letters()
    texts = TokenTexts(spelled.piece, marks_of(spelled), by_grammar=True)
    pieces = [
        piece for token in spelled.tokenize(answer, special=True) for piece in texts.add(Piece(text="", id=token))
    ]
    assert "".join(map(answer_text, [*pieces, *texts.end(cut=False)])) == answer


QUOTED = [
    "The template keeps `{}` as it is.",
    "Between `<think>` and `{}` there is thinking.",
    "Write `<think>…{}` and go on.",
    "It is ``a ` {}`` there.",
    'So `text.split("{}")[0]` drops it.',
    "They say `foo {}` ends it",
    'I have to print "{}" then',
    "The mark “{}” and ‘{}’",
    "```\n{}\n```",
    "```\n{}\n```\nSo.",
    "```xml\n<think>\nHm\n{}\n\nYes\n```",
    "~~~\n<think>a{}b\n~~~~ ",
    "```python\nparts = text.split('{}')\nprint(parts)\n```",
    '```python\ntext.rstrip().endswith("\\n{}")\n\nprint()\n```',
    "1. First:\n   ```\n   foo\n   {}\n   bar\n   ```\n2. then",
    "> ```\n> {}\n> ```",
    "````\n```\n{}\n```\n````",
    "```\n<think>{}\n<think>\n{}\n```",
    "This keeps `preserve_thinking`: only after `last_query_index` stays the `<think>…{}` block; so it is.",
    "Outer <think>inner{} continues",
    "Between <think> and {}, that is. And <think>{}.",
    "In `</tool_call>` and `{}`, both",
    "Jinja:\n```jinja\n{%- if '{}' in content %}\n{%- set parts = content.split('{}') %}\n{%- endif %}\n```",
]
UNQUOTED = [
    "The ` sign is odd.",
    "A name such as `foo is left open",
    "```python\nprint(1)\n",
    "```python\nprint(1)",
    "```\n<think>`{}`\n</think>\n",
    "~~~\nnever closed\n\n",
    'They said "hi."',
    "Say 'hi'",
    "# don't",
    "`a` and `b`",
    "```\ncode\n```",
    "an odd ``` one",
    "I explain the <think> tag",
    "<think>\nOnce more",
    "<think>",
    "```\n<think>`{}`\nand\n",
    "`",
    "``` ",
]


@pytest.mark.parametrize("closing", ["token", "spelled"])
@pytest.mark.parametrize("quoted", QUOTED)
def test_a_closing_mark_that_is_quoted_ends_nothing(quoted: str, closing: str) -> None:
    vocabulary = Letters("<think>", "</think>") if closing == "token" else Letters()
    thought = quoted.replace("{}", "</think>")
    for end in ("\n</think>\n\n", "\n</think>", "\n\n</think>\n"):
        told = Told(vocabulary, f"{thought}{end}Yes: `a`.\n\n```\nx\n```", "User: x\n<think>\n")
        assert told.both == (thought.rstrip(), "Yes: `a`.\n\n```\nx\n```")


@pytest.mark.parametrize("end", ["\n</think>\n\n", "</think>\n\n", "</think>"])
@pytest.mark.parametrize("answer", ["Yes.", "Use `a` and `b`.\n\n```\nx\n```", "The code:\n\n```\nx\n```\n"])
@pytest.mark.parametrize("thought", UNQUOTED)
def test_code_that_is_left_open_does_not_swallow_the_answer(thought: str, answer: str, end: str) -> None:
    thought = thought.replace("{}", "</think>").removesuffix("</think>\n")
    for vocabulary in (Letters(), Letters("<think>", "</think>")):
        told = Told(vocabulary, f"{thought}{end}{answer}", "User: x\n<think>\n")
        assert told.both == (thought.rstrip(), answer)


def test_a_quoted_mark_is_shown_although_its_token_has_no_text() -> None:
    class Controls(Letters):
        def piece(self, token: int) -> bytes:
            return bytes([token]) if token < 256 else b""

    told = Told(Controls("<think>", "</think>"), "Not `</think>` but\n</think>\n\nYes.", "x<think>")
    assert told.both == ("Not `</think>` but", "Yes.")


def test_words_that_any_model_may_write_are_no_mark_unless_the_template_has_them() -> None:
    assert Told(Letters(), f"{STEPS} I add.").both == ("", f"{STEPS} I add.")
    assert Told(Letters(template=STEPS), f"{STEPS} I add.").both == ("I add.", "")


def test_thinking_whose_opening_was_spelled_is_ended_by_either_tag() -> None:
    vocabulary = Letters("<think>", "</think>")
    opening = list(b"<think>")
    for closing in (list(b"</think>"), vocabulary.tokenize("</think>", special=True)):
        assert Told(vocabulary, [*opening, *b"Hm", *closing, *b"Yes"]).both == ("Hm", "Yes")


def test_an_answer_that_ends_while_it_thinks() -> None:
    assert Told(Letters(), "<think>a</thi").both == ("a</thi", "")
    assert Told(Letters(), "<think>a\n</thi", cut=True).both == ("a", "")
    assert Told(Letters(), "<thi", cut=True).both == ("", "")
    assert Told(Letters(), "<thi").both == ("", "<thi")


def test_stop_strings_count_in_the_answer_only() -> None:
    told = Told(Letters(), "<think>a STOP b</think>c STOP d", stops=["STOP"])
    assert told.both == ("a STOP b", "c ")
    assert Told(Letters(), "<think>a ST</think>OP d", stops=["STOP"]).both == ("a ST", "OP d")


@pytest.mark.parametrize(("answer", "shown"), [("<", ""), ("<thi", ""), ("<think>Hm</think>a <", "a "), (" \n\n", " ")])
def test_a_stop_string_that_is_met_only_at_the_end_is_not_shown(answer: str, shown: str) -> None:
    assert Told(Letters(), answer, stops=["<", "\n\n"]).answer == shown


SIGNS = ["<think>", "</think>", "<thi", "nk>", "</", "<", "\n", " ", "a", "é", "\n\n", "<response>", "</response>"]
QUOTING_SIGNS = [
    "<think>",
    "</think>",
    "</think>",
    "`",
    "``",
    "```\n",
    "\n```",
    '"',
    " ",
    "\n",
    "a",
    "a b.",
    "</th",
    "\n\n",
]
CHANNEL_SIGNS = [*HARMONY, "analysis", "final", "assistant", "a", "\n", " ", "é"]


def expected_of_tags(text: str, opened: bool) -> tuple[str, str]:
    """Thinking and answer of a complete text, without streaming."""
    thinking, around = "", opened
    while opened or re.match(r"\s*<think>(?!\s*\n\s*<think>|\s*\Z|\s*\n\s*<(?:thi)?\Z)", text):
        text = text if opened else text.lstrip().removeprefix("<think>")
        thinking += "\n\n" if thinking else ""
        opened, around = False, True
        thought, closed, text = text.lstrip().partition("</think>")
        if not closed:
            return thinking + thought, ""
        thinking += thought.rstrip()
    if around and (found := re.match(r"\s*<response>", text)):
        return thinking, text[found.end() :].lstrip("\n").replace("</response>", "")
    if around:
        text = re.sub(r"^\s*\n", "", text) if text.strip() else ""
    return thinking, text


@pytest.mark.parametrize("by_grammar", [False, True])
def test_quotations_are_decided_alike_however_the_text_is_cut(by_grammar: bool) -> None:
    rng = random.Random(6)
    marks, closed = marks_of(Letters()), 0
    for _ in range(3000):
        text = "".join(rng.choices(QUOTING_SIGNS, k=rng.randint(1, 16)))
        told = []
        for size in (1, rng.randint(2, 9), len(text)):
            splitter = marks.splitter(
                Letters().tokenize("<think>", special=True), Letters().piece, by_grammar=by_grammar
            )
            runs = [run for at in range(0, len(text), size) for run in splitter.feed(text[at : at + size])]
            runs += splitter.finish()
            assert "".join(run.text for run in runs) == text
            told.append(
                {
                    kind: "".join(one.text for one in runs if one.shown and one.thinking is kind)
                    for kind in (False, True)
                }
            )
        assert by_grammar or told[0] == told[1] == told[2], text
        closed += bool(told[0][False].strip())
    assert closed > 500


def test_random_texts_are_split_like_complete_ones() -> None:
    rng = random.Random(3)
    vocabulary = Letters(template=WRAPS)
    for _ in range(2000):
        text = "".join(rng.choices(SIGNS, k=rng.randint(1, 12)))
        opened = rng.random() < 0.3
        told = Told(vocabulary, text, "<think>\n" if opened else "")
        assert told.both == expected_of_tags(text, opened), text


@pytest.mark.parametrize(
    ("marks", "signs"),
    [
        ((), SIGNS),
        (("<think>", "</think>"), SIGNS),
        ((), QUOTING_SIGNS),
        (("<think>", "</think>"), QUOTING_SIGNS),
        (HARMONY, CHANNEL_SIGNS),
    ],
)
def test_an_answer_that_is_cut_and_goes_on_is_the_whole(marks: tuple[str, ...], signs: list[str]) -> None:
    rng = random.Random(4)
    vocabulary = Letters(*marks, template=WRAPS)
    for _ in range(60):
        prompt = "<|start|>assistant" if marks == HARMONY else rng.choice(["", "<think>\n"])
        text = rng.choice(signs[:2]) + "".join(rng.choices(signs, k=rng.randint(1, 10)))
        tokens = vocabulary.tokenize(text, special=True)
        whole = Told(vocabulary, tokens, prompt)
        for cut in range(1, len(tokens)):
            first = Told(vocabulary, tokens[:cut], prompt, cut=True)
            rest = Told(vocabulary, tokens[cut:], prompt, continued=tokens[:cut])
            assert first.thinking + rest.thinking == whole.thinking, (text, cut)
            assert first.answer + rest.answer == whole.answer, (text, cut)
