"""Texts to replay, and the suffix automaton that n-grams are compared with."""

from __future__ import annotations

import json
import random

from benchmarks.ngram import SuffixAutomaton
from benchmarks.ngram_texts import _json, _quotes, _renamed, _turns

CODE = "def total(values):\n    values = list(values)\n    return sum(values)\n"


def test_a_name_is_replaced_everywhere() -> None:
    found = _renamed(CODE, random.Random(1))
    assert found
    asked, code = found
    assert asked.startswith("Rename values to ")
    assert code == CODE.replace("values", asked.split()[-1].rstrip("."))
    assert _renamed("x = 1\n", random.Random(1)) is None


def test_an_agent_replaces_one_part_after_the_other() -> None:
    before = "".join(f"line {i}\n" for i in range(40))
    after = before.replace("line 3\n", "third\n").replace("line 30\n", "")
    text, said = before, ""
    for prompt, answer in _turns("Clean up", "a.py", before, after):
        assert prompt.startswith(said)
        call = json.loads(answer.split("<tool_call>\n")[1].split("\n</tool_call>")[0])["arguments"]
        assert text.count(call["old_string"]) == 1
        text = text.replace(call["old_string"], call["new_string"])
        said = prompt + answer
    assert text == after


def test_requests_are_different_from_each_other() -> None:
    for requests in (list(_quotes()), list(_json())):
        assert len(requests) == len(set(requests)) >= 8


def test_the_automaton_finds_the_longest_match() -> None:
    rng = random.Random(1)
    for _ in range(200):
        text = rng.choices(range(3), k=rng.randint(1, 40))
        automaton = SuffixAutomaton()
        for token in text:
            automaton.add(token)
        length, end = automaton.longest_match()
        earlier = [n for n in range(1, len(text)) if any(text[i - n : i] == text[-n:] for i in range(n, len(text)))]
        assert length == max(earlier, default=0)
        assert not length or text[end - length + 1 : end + 1] == text[-length:]
