"""Comparisons as they come out of a runner."""

from __future__ import annotations

import msgspec

from app.compare.prompts import Prompt
from app.compare.results import Comparison, Difference, Machine, ModelFile, Report, Run, Setup, first_difference
from app.compare.steps import task_of
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Message, generate
from app.protocol.events import DraftFigures, Figures, Piece
from app.protocol.options import DrafterName

WORDS = ("One", " small", " draft", " and", " a", " large", " target", ".")


def prompt(kind: str = "code", text: str = "Write a loop") -> Prompt:
    return Prompt(kind=kind, messages=[Message(role="user", content=text)])


def run(words: tuple[str, ...] = WORDS, speed: float | None = 40.0, kept: float | None = None) -> Run:
    """``kept`` gives it a draft."""
    draft = DraftFigures()
    if kept is not None:
        accepted = round(kept * 100)
        draft = DraftFigures(
            drafted=100,
            tested=100,
            accepted=accepted,
            acceptance_rate=kept,
            verify_passes=50,
            mean_acceptance_length=1 + accepted / 50,
        )
    figures = Figures(completion_tokens=len(words), decode_tokens_per_second=speed, total_seconds=0.5, draft=draft)
    drafter: DrafterName | None = None if kept is None else "model"
    pieces = [
        Piece(text=word, id=sum(word.encode()) + 1000, drafter=drafter if index % 2 else None, round=index // 2)
        for index, word in enumerate(words)
    ]
    return Run(pieces=pieces, figures=figures)


def comparison(
    kind: str = "code",
    *,
    speeds: tuple[float | None, float | None] = (40.0, 76.0),
    kept: float | None = 0.71,
    other: tuple[str, ...] | None = None,
    seed: int = 4,
    text: str = "Write a loop",
) -> Comparison:
    """``other``: the words of the drafted run, where they are not the same."""
    plain, drafted = run(speed=speeds[0]), run(other or WORDS, speeds[1], kept)
    found: Difference | None = first_difference(plain, drafted)
    return Comparison(prompt=prompt(kind, text), seed=seed, plain=plain, drafted=drafted, difference=found)


def compared(one: Comparison, settings: AnswerSettings | None = None) -> Comparison:
    """The same with the command that the runner adds."""
    task = task_of(one.prompt, generate(settings or AnswerSettings(), []), one.seed)
    return msgspec.structs.replace(one, command=task.command)


def setup() -> Setup:
    return Setup(
        date="2026-03-01T12:00:00+01:00",
        app_version="1.2",
        engine="llama.cpp (test)",
        machine=Machine(processor="A processor", physical_cores=4, memory_bytes=2**33, system="An OS"),
        target=ModelFile(name="target", file="target.gguf", quantization="F16"),
        draft=ModelFile(name="draft", file="draft.gguf"),
        context_length=2048,
        threads=4,
        max_tokens=128,
        prompt_set="bundled",
    )


def report(*comparisons: Comparison) -> Report:
    found = list(comparisons) or [comparison("code"), comparison("story", speeds=(40.0, 36.0), kept=0.2)]
    return Report(setup=setup(), comparisons=found, planned=len(found))
