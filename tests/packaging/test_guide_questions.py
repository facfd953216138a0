"""The questions that the guide is measured with: what is in the files, and how an answer is judged."""

from __future__ import annotations

import pytest
from guide import questions
from guide.corpus import Topic, load_corpus

PLAIN = ("what is ", "what are ", "what does ", "what do ", "how do i ")
FEW_WORDS = 8
"""A question about a label that begins like that, or is that short, is one that anybody would ask, the corpus too."""


@pytest.fixture(scope="module")
def topics() -> list[Topic]:
    return load_corpus()


def test_each_label_is_asked_about_three_times_each_time_otherwise() -> None:
    by_label = questions.label_questions()
    assert len(by_label) == 149
    assert {label for label, asked in by_label.items() if len(asked) != 3} == set()
    asked = [questions.bare(one) for ones in by_label.values() for one in ones]
    assert sorted(asked) == sorted(set(asked))


def test_the_corpus_has_no_question_about_a_label_but_plain_ones(topics: list[Topic]) -> None:
    """Whoever writes a topic asks "What is a preset?", too; a longer question is for measuring alone."""
    asked = {questions.bare(one) for ones in questions.label_questions().values() for one in ones}
    both = asked & questions.learnt(topics)
    assert [one for one in both if len(one.split()) > FEW_WORDS and not one.startswith(PLAIN)] == []


def test_no_question_of_the_corpus_has_two_answers(topics: list[Topic]) -> None:
    answers: dict[str, str] = {}
    twice = []
    for turn in (turn for topic in topics for turn in topic.turns):
        for wording in {questions.bare(one) for one in (*turn.train, *turn.held_out)}:
            if answers.setdefault(wording, turn.answer) != turn.answer:
                twice.append(wording)
    assert twice == []
