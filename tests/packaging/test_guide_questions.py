"""The questions that the guide is measured with: what is in the files, and how an answer is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from guide import questions
from guide.corpus import Topic, Turn, load_corpus

PLAIN = ("what is ", "what are ", "what does ", "what do ", "how do i ")
FEW_WORDS = 8
"""A question about a label that begins like that, or is that short, is one that anybody would ask, the corpus too."""


@pytest.fixture(scope="module")
def topics() -> list[Topic]:
    return load_corpus()


def _topic(name: str, answer: str, *facts: str, question: str = "Why?") -> Topic:
    return Topic(name, "prose", (Turn((question,), (), answer, tuple((fact,) for fact in facts)),))


COW = _topic("cow", "A cow is an animal that gives milk and eats grass all day.", "milk")
CAT = _topic("cat", "A cat is an animal that likes milk too, and sleeps all day.", "sleeps")


def _asked(topic: Topic) -> questions.Asked:
    turn = topic.turns[0]
    return questions.Asked(topic.id, topic.kind, (), turn.train[0], turn.facts, turn.answer)


def test_each_label_is_asked_about_three_times_each_time_otherwise() -> None:
    by_label = questions.label_questions()
    assert len(by_label) == 149
    assert {label for label, asked in by_label.items() if len(asked) != 3} == set()
    asked = [questions.bare(one) for ones in by_label.values() for one in ones]
    assert sorted(asked) == sorted(set(asked))


def test_each_label_has_a_topic_of_the_corpus(topics: list[Topic]) -> None:
    of_label = questions.label_topics()
    assert of_label.keys() == questions.label_questions().keys()
    assert set(of_label.values()) - {topic.id for topic in topics} == set()


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


def test_blind_questions_name_topics_of_the_corpus(topics: list[Topic]) -> None:
    assert len(questions.blind(topics)) == 150
    with pytest.raises(ValueError, match=r"The corpus has no topic .*, which '.*' asks for\."):
        questions.blind([CAT])


def test_own_answer_begins_like_the_topics_and_has_its_facts() -> None:
    asked = _asked(COW)
    assert questions.gets_own(asked, COW.turns[0].answer)
    assert questions.gets_own(asked, "A cow is an animal that gives milk to you.")
    assert not questions.gets_own(asked, "A cow is an animal that gives")  # no fact, and too short
    assert not questions.gets_own(asked, "Milk: a cow is an animal that gives milk.")
    assert not questions.gets_own(asked, CAT.turns[0].answer)
    short = _asked(_topic("yes", "Yes, it does.", "does"))  # fewer words than are compared
    assert questions.gets_own(short, "Yes, it does.")
    assert not questions.gets_own(short, "No, but it does.")


def test_topic_of_an_answer_is_the_one_that_begins_most_like_it() -> None:
    assert questions.topic_of("A cat is an animal that barks.", [COW, CAT]) == "cat"
    assert questions.topic_of("A cow is blue.", [COW, CAT]) == "cow"
    assert questions.topic_of("A dog is an animal.", [COW, CAT]) == ""
    assert questions.topic_of("", [COW, CAT]) == ""


def test_question_about_a_label_goes_with_its_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "LABELS", tmp_path / "labels.jsonl")
    monkeypatch.setattr(questions, "LABEL_TOPICS", tmp_path / "label-topics.tsv")
    questions.LABELS.write_text(
        '{"label": "Cow…", "question": "what is a cow"}\n{"label": "Dog", "question": "What is a dog?"}\n', "utf-8"
    )
    questions.LABEL_TOPICS.write_text("Cow…\tcow\n", "utf-8")
    asked = questions.labels([COW, CAT])
    assert [(one.label, one.wording, one.topic, one.own) for one in asked] == [
        ("Cow…", "what is a cow", "cow", COW.turns[0].answer)
    ]
    assert questions.labels([CAT]) == []


@pytest.mark.parametrize("text", ["Cow\n", "Cow\t\n", "\tcow\n", "Cow\tcow\nCow\tcat\n"])
def test_file_of_topics_with_a_wrong_line_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "LABEL_TOPICS", tmp_path / "label-topics.tsv")
    questions.LABEL_TOPICS.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=rf"label-topics\.tsv:{text.count(chr(10))}: expected a new label"):
        questions.label_topics()
