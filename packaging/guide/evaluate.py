"""Measures the pair on held-out wordings, with the app's own engine: facts, kept guesses, sameness and speed.

Run as `python -m guide.evaluate` in `packaging/`. The timed part needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app import program  # noqa: E402

program.prepare_engine(os.environ)

from app.engine.host.engine import Engine  # noqa: E402
from app.protocol.commands import Generate, Load, Message  # noqa: E402
from app.protocol.events import Figures, GenerationFinished, Round  # noqa: E402
from app.protocol.options import LoadSettings, Sampling  # noqa: E402
from guide.corpus import CORPUS, Topic, has_facts, load_corpus  # noqa: E402

RESOURCES = ROOT / "resources" / "guide"
TARGET, DRAFT = RESOURCES / "guide-target.gguf", RESOURCES / "guide-draft.gguf"
BLIND = Path(__file__).parent / "blind.jsonl"
LONGEST = 400


@dataclass(frozen=True)
class Asked:
    """A held-out question: what was said before it, its wording, and the turn it belongs to."""

    topic: str
    kind: str
    before: tuple[str, ...]
    wording: str
    facts: tuple[tuple[str, ...], ...]


@dataclass
class Quality:
    """Shares over held-out questions; `same` is how often the text with the draft was the text without it."""

    questions: int
    facts: float
    acceptance: float
    tokens_a_pass: float
    same: float
    by_kind: dict[str, float]


def held_out(topics: list[Topic]) -> list[Asked]:
    """All held-out wordings with facts to check, follow-ups of dialogues too, in a fixed random order."""
    asked = []
    for topic in topics:
        before: list[str] = []
        for turn in topic.turns:
            asked += [Asked(topic.id, topic.kind, tuple(before), wording, turn.facts) for wording in turn.held_out]
            before += [turn.train[0], turn.answer]
    random.Random(0).shuffle(asked)
    return asked


def blind(topics: list[Topic]) -> list[Asked]:
    """The questions of `blind.jsonl`, with the facts of the topics they ask for."""
    turns = {topic.id: (topic.kind, topic.turns[0]) for topic in topics}
    asked = []
    for line in BLIND.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        kind, turn = turns[entry["topic"]]
        asked.append(Asked(entry["topic"], kind, (), entry["question"], turn.facts))
    return asked


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
    tested = accepted = same = passes = tokens = 0
    log = answers.open("w", encoding="utf-8") if answers else None
    for question in asked:
        drafted, figures = pair.answer(question, draft_length)
        plain, _ = pair.answer(question, 0)
        same += drafted == plain
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
        acceptance=round(accepted / max(1, tested), 4),
        tokens_a_pass=round(tokens / max(1, passes), 2),
        same=round(same / len(asked), 4),
        by_kind={kind: round(sum(goods) / len(goods), 3) for kind, goods in sorted(right.items())},
    )


def speed(pair: Pair, asked: list[Asked], lengths: list[int]) -> dict[str, float]:
    """Median decode speeds in tokens/s, plain ("0") and for each draft length, taking turns on each question."""
    measured: dict[int, list[float]] = {length: [] for length in (0, *lengths)}
    for question in asked:
        for length in measured:
            figures = pair.answer(question, length)[1]
            if figures.decode_tokens_per_second and figures.completion_tokens >= 20:
                measured[length].append(figures.decode_tokens_per_second)
    return {str(length): round(statistics.median(speeds), 1) for length, speeds in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--blind", action="store_true", help="ask the questions of blind.jsonl instead")
    parser.add_argument("--questions", type=int, help="only so many of them (default: all)")
    parser.add_argument("--timed", type=int, default=60, help="questions for the timed part, 0 leaves it out")
    parser.add_argument("--lengths", type=int, nargs="*", help="draft lengths to time (default: the pair's own)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--answers", type=Path, help="write every answer here, as JSON lines")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    pair = Pair(options.target, options.draft, options.threads)
    topics = load_corpus(options.corpus)
    asked = (blind(topics) if options.blind else held_out(topics))[: options.questions]
    result = {"draft_length": pair.draft_length}
    result |= asdict(quality(pair, asked, pair.draft_length, options.answers))
    if options.timed:
        speeds = speed(pair, asked[: options.timed], options.lengths or [pair.draft_length])
        result["tokens_per_second"] = speeds
        result["speed_up"] = {
            length: round(value / speeds["0"], 2) for length, value in speeds.items() if length != "0"
        }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
