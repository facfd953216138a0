"""Measures the pair on held-out wordings, with the app's own engine: facts, accepted draft tokens, sameness and speed.

Run as `python -m guide.evaluate` in `packaging/`. The timed part needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app import system  # noqa: E402

system.prepare_engine(os.environ)

from app.engine.host.engine import Engine  # noqa: E402
from app.protocol.commands import Generate, Load, Message  # noqa: E402
from app.protocol.events import Figures, GenerationFinished, Round  # noqa: E402
from app.protocol.options import LoadSettings, Sampling  # noqa: E402
from guide import questions  # noqa: E402
from guide.corpus import CORPUS, Topic, has_facts, load_corpus  # noqa: E402
from guide.questions import Asked, gets_own  # noqa: E402

RESOURCES = ROOT / "resources" / "guide"
TARGET, DRAFT = RESOURCES / "guide-target.gguf", RESOURCES / "guide-draft.gguf"
LONGEST = 400


@dataclass
class Quality:
    """Shares of the questions: answered with all `facts`, with their topic's `own` answer, and `same`: with the draft
    as without it.
    """

    questions: int
    facts: float
    own: float
    acceptance: float
    tokens_a_pass: float
    same: float
    by_kind: dict[str, float]


@dataclass(frozen=True)
class Missed:
    """A question that didn't get its own answer; `instead` is the topic whose answer came, empty if it is none's."""

    label: str
    question: str
    topic: str
    instead: str
    answer: str


class Pair:
    """The pair under the engine, greedy."""

    def __init__(self, target: Path, draft: Path, threads: int) -> None:
        self._engine = Engine()
        loaded = self._engine.load(
            Load(request=1, target=str(target), draft=str(draft), settings=LoadSettings(threads=threads)),
            lambda _: None,
        )
        if loaded.draft_refused:
            raise RuntimeError(loaded.draft_refused)
        self.draft_length = loaded.default_draft_length

    def answer(self, asked: Asked, draft_length: int) -> tuple[str, Figures]:
        roles = ("user", "assistant")
        messages = [Message(role=roles[place % 2], content=text) for place, text in enumerate(asked.before)]
        messages.append(Message(role="user", content=asked.wording))
        command = Generate(
            request=2,
            messages=messages,
            sampling=Sampling(temperature=0.0),
            seed=1,
            max_tokens=LONGEST,
            draft_length=draft_length,
        )
        text = ""
        for event in self._engine.generate(command):
            if isinstance(event, Round):
                text += "".join(piece.text for piece in event.pieces)
            elif isinstance(event, GenerationFinished):
                return text, event.figures
        raise AssertionError("a generation always finishes")


def quality(pair: Pair, asked: list[Asked], draft_length: int, answers: Path | None = None) -> Quality:
    """Answer every question with and without the draft."""
    right: dict[str, list[bool]] = {}
    tested = accepted = same = own = passes = tokens = 0
    log = answers.open("w", encoding="utf-8") if answers else None
    for question in asked:
        drafted, figures = pair.answer(question, draft_length)
        plain, _ = pair.answer(question, 0)
        same += drafted == plain
        own += gets_own(question, plain)
        tested += figures.draft.tested
        accepted += figures.draft.accepted
        passes += figures.draft.verify_passes
        tokens += figures.completion_tokens
        good = has_facts(plain, question.facts)
        if question.facts:
            right.setdefault(question.kind, []).append(good)
        if log:
            log.write(json.dumps(asdict(question) | {"answer": plain, "right": good}, ensure_ascii=False) + "\n")
    if log:
        log.close()
    checked = [good for kind in right.values() for good in kind]
    return Quality(
        questions=len(checked),
        facts=round(sum(checked) / len(checked), 4),
        own=round(own / len(asked), 4),
        acceptance=round(accepted / max(1, tested), 4),
        tokens_a_pass=round(tokens / max(1, passes), 2),
        same=round(same / len(asked), 4),
        by_kind={kind: round(sum(goods) / len(goods), 3) for kind, goods in sorted(right.items())},
    )


def missed(pair: Pair, asked: list[Asked], topics: list[Topic]) -> list[Missed]:
    """The questions that don't get their topic's own answer."""
    found = []
    for question in asked:
        answer, _ = pair.answer(question, pair.draft_length)
        if not gets_own(question, answer):
            instead = questions.topic_of(answer, topics)
            found.append(Missed(question.label, question.wording, question.topic, instead, answer))
    return found


def own_share(asked: list[Asked], wrong: list[Missed]) -> float:
    """Share of the questions that get their own answer."""
    return round(1 - len(wrong) / max(1, len(asked)), 4)


def label_report(asked: list[Asked], wrong: list[Missed], learnt: set[str]) -> str:
    """How many questions about labels get their own answer, and what the others get, by label.

    ``learnt``: the questions of the corpus.
    """
    labels, share = {question.label for question in asked}, own_share(asked, wrong)
    right = f"{len(asked) - len(wrong)} of {len(asked)}"
    lines = [f"{right} questions about {len(labels)} labels get their own answer: {share:.1%}"]
    strangers = [one for one in asked if questions.bare(one.wording) not in learnt]
    lost = sum(questions.bare(one.question) not in learnt for one in wrong)
    if strangers:
        lines.append(f"Of the {len(strangers)} that don't stand in the corpus: {1 - lost / len(strangers):.1%}")
    without = [label for label in questions.label_questions() if label not in labels]
    if without:
        lines.append(f"{len(without)} labels have no topic in this corpus: {', '.join(without)}")
    by_label: dict[str, list[Missed]] = {}
    for one in wrong:
        by_label.setdefault(one.label, []).append(one)
    for label, ones in by_label.items():
        lines.append(f"{label} ({ones[0].topic}):")
        lines += [f"  {one.question} -> {_what_came(one)}" for one in ones]
    return "\n".join(lines)


def _what_came(one: Missed) -> str:
    beginning = " ".join(one.answer.split()[:12])
    if one.instead == one.topic:
        return f"its own topic, in other words or without all facts: {beginning} …"
    return f"{one.instead or 'no topic'}: {beginning} …"


def speed(pair: Pair, asked: list[Asked], lengths: list[int]) -> dict[str, float]:
    """Median decode speeds in tokens/s, plain ("0") and for each draft length, taking turns on each question."""
    measured: dict[int, list[float]] = {length: [] for length in (0, *lengths)}
    for question in asked:
        for length in measured:
            figures = pair.answer(question, length)[1]
            if figures.decode_tokens_per_second and figures.completion_tokens >= 20:
                measured[length].append(figures.decode_tokens_per_second)
    return {str(length): round(statistics.median(speeds), 1) for length, speeds in measured.items()}


def about_labels(pair: Pair, topics: list[Topic], options: argparse.Namespace) -> dict[str, object]:
    """Ask the questions about labels, and say which are missed."""
    asked = questions.labels(topics)[: options.questions]
    wrong = missed(pair, asked, topics)
    print(label_report(asked, wrong, questions.learnt(topics)))
    return {"questions": len(asked), "own": own_share(asked, wrong), "missed": [asdict(one) for one in wrong]}


def about_answers(pair: Pair, topics: list[Topic], options: argparse.Namespace) -> dict[str, object]:
    """Ask held-out or blind questions with and without the draft, and time some of them."""
    asked = (questions.blind(topics) if options.blind else questions.held_out(topics))[: options.questions]
    result = {"draft_length": pair.draft_length} | asdict(quality(pair, asked, pair.draft_length, options.answers))
    if options.timed:
        speeds = speed(pair, asked[: options.timed], options.lengths or [pair.draft_length])
        result["tokens_per_second"] = speeds
        result["speed_up"] = {
            length: round(value / speeds["0"], 2) for length, value in speeds.items() if length != "0"
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--blind", action="store_true", help="ask the questions of blind.jsonl instead")
    which.add_argument("--labels", action="store_true", help="ask those of labels.jsonl, and say what is missed")
    parser.add_argument("--questions", type=int, help="only so many of them (default: all)")
    parser.add_argument("--timed", type=int, default=60, help="questions for the timed part, 0 leaves it out")
    parser.add_argument("--lengths", type=int, nargs="*", help="draft lengths to time (default: the pair's own)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--answers", type=Path, help="write every answer here, as JSON lines")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    pair = Pair(options.target, options.draft, options.threads)
    topics = load_corpus(options.corpus)
    result = about_labels(pair, topics, options) if options.labels else about_answers(pair, topics, options)
    text = json.dumps(result, indent=2, ensure_ascii=False)
    if not options.labels:
        print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
