"""A report to write down, with everything in it that is awkward."""

from __future__ import annotations

import msgspec

from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, Difference, Machine, ModelFile, Report, Run, Setup, Skipped
from app.protocol.commands import Message
from app.protocol.events import DrafterFigures, DraftFigures, Figures, Piece
from app.protocol.options import Sampling

SETUP = Setup(
    date="2026-11-21T10:00:00+01:00",
    app_version="1.2.3",
    engine="llama.cpp (test)",
    python="3.11.7",
    machine=Machine(
        processor="Test | CPU", physical_cores=2, logical_cores=4, memory_bytes=8 * 2**30, system="TestOS 1"
    ),
    target=ModelFile(name="Big *model*", file="big model.gguf", size_bytes=12_000_000, quantization="F16", sha256="a1"),
    draft=ModelFile(name="Small", file="small.gguf", size_bytes=1_000_000, quantization="Q8_0", sha256="b2"),
    context_length=2048,
    threads=2,
    sampling=Sampling(temperature=0.8, repetition_penalty=1.1),
    seed=3,
    repeat=2,
    max_tokens=256,
    prompt_set="my set.jsonl",
    prompt_set_sha256="c3",
    kinds=["code", "prose"],
)


def run(text: str, speed: float | None, draft: DraftFigures | None = None) -> Run:
    figures = Figures(
        prompt_tokens=9,
        completion_tokens=len(text),
        decode_tokens_per_second=speed,
        total_seconds=1.5,
        verify_seconds=0.05 if draft else 0.0,
        draft=draft or DraftFigures(),
    )
    return Run(
        pieces=[Piece(text=c, id=ord(c)) for c in text],
        figures=figures,
        finish_reason="length",
        drafting_seconds=0.003 if draft else 0.0,
    )


DRAFT = DraftFigures(
    drafted=12,
    tested=10,
    accepted=7,
    acceptance_rate=0.7,
    verify_passes=5,
    mean_acceptance_length=2.4,
    drafters=[DrafterFigures(name="model", drafted=12, tested=10, accepted=7, acceptance_rate=0.7, verify_passes=5)],
)


def comparison(kind: str, text: str, plain: Run, drafted: Run, difference: Difference | None = None) -> Comparison:
    prompt = Prompt(kind=kind, messages=[Message(role="user", content=text)])
    return Comparison(prompt=prompt, seed=3, plain=plain, drafted=drafted, difference=difference)


NEAR_TIE = Difference(
    token=1,
    character=1,
    plain="\n|",
    drafted=" =b",
    plain_id=98,
    drafted_id=99,
    plain_logit=12.345,
    drafted_logit=12.335,
    score_gap=0.0123,
    rounding=0.02,
    near_tie=True,
)

REPORT = Report(
    setup=SETUP,
    comparisons=[
        comparison("code", '=SUM(1) | "x"', run("abc", 40.0), run("abc", 80.0, DRAFT)),
        comparison("code", " +1 <b>", run("abc", 50.0), run("axc", 40.0, DRAFT), NEAR_TIE),
        comparison("prose", "half \ud800 pair", run("a", None), run("a", None)),
    ],
    planned=5,
    skipped=[Skipped(prompt=Prompt(kind="prose", messages=[Message(role="user", content="long")]), reason="Too long.")],
    curves=[Curve(lengths=[0, 1, 2], speeds=[40.0, 60.0, None], auto=70.0, auto_length=1.5)],
)


SEVERAL = msgspec.structs.replace(
    REPORT,
    setup=msgspec.structs.replace(SETUP, drafters=["ngram", "model"], drafter_bytes={"model": 14_200_000}),
    comparisons=[
        msgspec.structs.replace(one, drafter=drafter, drafted=drafted)
        for one in REPORT.comparisons
        for drafter, drafted in (("ngram", run("abc", 60.0, DRAFT)), ("model", one.drafted))
    ],
    planned=8,
    curves=[
        Curve(drafter="ngram", lengths=[0, 1], speeds=[40.0, 44.0]),
        Curve(drafter="model", lengths=[0, 1], speeds=[40.0, 50.0], auto=70.0, auto_length=1.5),
    ],
)
"""With two drafters."""


def with_setup(**changes: object) -> Report:
    return msgspec.structs.replace(REPORT, setup=msgspec.structs.replace(SETUP, **changes))
