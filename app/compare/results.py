"""The result of a comparison: two runs, where their texts differ, and the totals of a set of comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from app.compare.prompts import Prompt
from app.protocol.answering import AnswerSettings, with_fields_of
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import DrafterFigures, Figures, Piece, TokensScored
from app.protocol.options import DrafterChoice, DrafterName, FinishReason
from app.protocol.statistics import acceptance_rate, mean_acceptance_length, sums_by_drafter


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One answer and its figures."""

    pieces: list[Piece] = []
    figures: Figures = Figures()
    finish_reason: FinishReason = "end"
    drafting_seconds: float = 0.0
    """Of rounds that drafted something."""
    draft_failure: str | None = None
    """Why drafting stopped before the end, for the user."""

    @property
    def text(self) -> str:
        """The answer, without the thinking."""
        return "".join(piece.text for piece in self.pieces if not piece.thinking)

    @property
    def thinking(self) -> str:
        """What the model thought before it."""
        return "".join(piece.text for piece in self.pieces if piece.thinking)

    @property
    def token_ids(self) -> list[int]:
        """Empty if the engine doesn't report any (a server)."""
        ids = [piece.id for piece in self.pieces]
        return ids if all(token >= 0 for token in ids) else []


# ---------------------------------------------------------------- where two answers differ


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where two answers to the same prompt and seed start to differ."""

    token: int | None
    """Index of the first different token; ``None`` if the engine reports no token ids."""
    character: int
    """Where the texts start to differ: both have the same characters before this index."""
    in_thinking: bool = False
    """Whether they differ in the thinking already; then ``character`` counts there."""
    plain: str
    """The text of the token without a draft; empty for the end of the answer and for a part of a character."""
    drafted: str
    plain_id: int | None = None
    """``None`` if this answer has ended or the engine reports no tokens."""
    drafted_id: int | None = None
    plain_logit: float | None = None
    drafted_logit: float | None = None
    score_gap: float | None = None
    """How far apart the two are in log p + noise, which decides; ``None`` if the sampler excludes one or it wasn't
    checked.
    """
    rounding: float | None = None
    """How far rounding can shift logits there."""
    near_tie: bool | None = None
    """Whether rounding alone can make either of the two win; ``None`` if it wasn't checked."""


def first_difference(plain: Run, drafted: Run) -> Difference | None:
    """Where thinking or answer start to differ; ``None`` if both are the same. `with_scores` adds logits."""
    in_thinking = plain.thinking != drafted.thinking
    if not in_thinking and plain.text == drafted.text:
        return None
    texts = (plain.thinking, drafted.thinking) if in_thinking else (plain.text, drafted.text)
    character = _shared(*texts)
    ids = plain.token_ids, drafted.token_ids
    if not all(ids):
        return Difference(
            token=None,
            character=character,
            in_thinking=in_thinking,
            plain=_word_at(texts[0], character),
            drafted=_word_at(texts[1], character),
        )
    index = _shared(*ids)
    first, second = (next(iter(run.pieces[index:]), None) for run in (plain, drafted))
    return Difference(
        token=index,
        character=character,
        in_thinking=in_thinking,
        plain=first.text if first else "",
        drafted=second.text if second else "",
        plain_id=first.id if first else None,
        drafted_id=second.id if second else None,
    )


def score_command(comparison: Comparison) -> ScoreTokens | None:
    """Asks the engine to score both candidates of a difference; ``None`` unless there are two token ids."""
    found, command = comparison.difference, comparison.command
    if found is None or found.token is None or found.plain_id is None or found.drafted_id is None:
        return None
    return with_fields_of(
        ScoreTokens,
        command,
        request=0,
        seed=comparison.seed,
        answer=comparison.plain.token_ids[: found.token],
        candidates=[found.plain_id, found.drafted_id],
    )


def with_scores(difference: Difference, scored: TokensScored) -> Difference:
    """``difference`` with the engine's answer to `score_command`."""
    plain, drafted = scored.scores
    return msgspec.structs.replace(
        difference,
        plain_logit=scored.logits[0],
        drafted_logit=scored.logits[1],
        score_gap=None if plain is None or drafted is None else abs(plain - drafted),
        rounding=scored.rounding,
        near_tie=all(scored.could_win),
    )


def _shared(first: Sequence[object], second: Sequence[object]) -> int:
    """The length of the common beginning of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _word_at(text: str, character: int) -> str:
    """The text from ``character`` to the end of the word, shown if there are no tokens."""
    words = text[character : character + 40].split(maxsplit=1)
    return words[0] if words else ""


# ---------------------------------------------------------------- comparisons


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two answers to the same prompt with the same seed, without and with the draft."""

    prompt: Prompt
    seed: int
    command: Generate = Generate(request=0, messages=[])
    """The seed used for both answers; reports don't have it."""
    drafter: DrafterChoice = "auto"
    """Of the second answer. Comparisons with other drafters have the same first one."""
    plain: Run
    drafted: Run
    difference: Difference | None = None

    @property
    def same(self) -> bool:
        """Whether both have the same thinking and the same text."""
        return (self.plain.thinking, self.plain.text) == (self.drafted.thinking, self.drafted.text)

    @property
    def speed_up(self) -> float | None:
        """Decode speed with the draft ÷ without it; ``None`` if an answer is too short to tell."""
        plain = self.plain.figures.decode_tokens_per_second
        drafted = self.drafted.figures.decode_tokens_per_second
        return drafted / plain if plain and drafted else None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that couldn't be answered, for example because it is longer than the context."""

    prompt: Prompt
    reason: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of comparisons of one kind with one drafter. Speeds are decode speeds in tokens per second."""

    kind: str
    drafter: DrafterChoice = "auto"
    runs: int = 0
    same: int = 0
    """Runs with the same text."""
    near_ties: int = 0
    """Runs whose texts start to differ at a near-tie."""
    tokens: int = 0
    """Of the answers with the draft."""
    plain_speed: float | None = None
    """Median over the runs that are long enough to have a speed."""
    drafted_speed: float | None = None
    speed_up: float | None = None
    """Median of the ratios, not the ratio of the medians."""
    speed_up_low: float | None = None
    """First quartile."""
    speed_up_high: float | None = None
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    verify_passes: int = 0
    mean_acceptance_length: float | None = None
    drafters: list[DrafterFigures] = []
    draft_token_seconds: float | None = None
    """Time of drafts ÷ their tokens; ``None`` if the engine doesn't report it."""
    pass_seconds: float | None = None
    """Of the verify passes, on average."""
    plain_pass_seconds: float | None = None
    """Of the passes without a draft."""
    seconds: float = 0.0
    """The time of all runs, including prompt processing."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A table: one row for each kind in order of appearance, and the totals."""

    rows: list[Row]
    total: Row


def by_drafter(comparisons: Sequence[Comparison]) -> dict[DrafterChoice, Summary]:
    """A table for each drafter, in order of appearance; at least one."""
    found: dict[DrafterChoice, list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault(comparison.drafter, []).append(comparison)
    return {drafter: summarize(own) for drafter, own in found.items()} or {"auto": summarize(())}


def summarize(comparisons: Sequence[Comparison]) -> Summary:
    """Medians and sums by kind, of comparisons with one drafter."""
    kinds: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        kinds.setdefault(comparison.prompt.kind, []).append(comparison)
    return Summary(rows=[_row(kind, found) for kind, found in kinds.items()], total=_row("all", comparisons))


def _row(kind: str, comparisons: Sequence[Comparison]) -> Row:
    timed = [c for c in comparisons if c.speed_up is not None]
    speed_ups = [c.speed_up for c in timed if c.speed_up is not None]
    low, high = _quartiles(speed_ups)
    draft = [c.drafted.figures.draft for c in comparisons]
    drafted, tested, accepted = (sum(getattr(d, name) for d in draft) for name in ("drafted", "tested", "accepted"))
    passes = sum(d.verify_passes for d in draft)
    return Row(
        kind=kind,
        drafter=comparisons[0].drafter if comparisons else "auto",
        runs=len(comparisons),
        same=sum(c.same for c in comparisons),
        near_ties=sum(c.difference is not None and bool(c.difference.near_tie) for c in comparisons),
        tokens=sum(c.drafted.figures.completion_tokens for c in comparisons),
        plain_speed=_median([c.plain.figures.decode_tokens_per_second for c in timed]),
        drafted_speed=_median([c.drafted.figures.decode_tokens_per_second for c in timed]),
        speed_up=_median(speed_ups),
        speed_up_low=low,
        speed_up_high=high,
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        acceptance_rate=acceptance_rate(accepted, tested),
        verify_passes=passes,
        mean_acceptance_length=mean_acceptance_length(accepted, passes),
        drafters=sums_by_drafter(*(d.drafters for d in draft)),
        draft_token_seconds=_share(sum(c.drafted.drafting_seconds for c in comparisons), drafted),
        pass_seconds=_pass_seconds([c.drafted for c in comparisons]),
        plain_pass_seconds=_pass_seconds([c.plain for c in comparisons]),
        seconds=sum(c.plain.figures.total_seconds + c.drafted.figures.total_seconds for c in comparisons),
    )


def _pass_seconds(runs: Sequence[Run]) -> float | None:
    figures = [run.figures for run in runs]
    return _share(sum(f.verify_seconds for f in figures), sum(f.draft.verify_passes for f in figures))


def _share(seconds: float, count: int) -> float | None:
    """Servers report no such times."""
    return seconds / count if seconds and count else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _quartiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return (values[0], values[0]) if values else (None, None)
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


# ---------------------------------------------------------------- everything needed to repeat it


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file a model came from."""

    name: str
    file: str
    """The name without folders, which could reveal too much to others."""
    size_bytes: int = 0
    quantization: str = ""
    parameters: int = 0
    bundled: bool = False
    """Whether it is part of the bundled guide."""
    sha256: str = ""
    """Of all parts of a split model in order; empty while it is being computed, and if there is no file."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The computer. No host name, no user name."""

    processor: str = ""
    physical_cores: int = 0
    logical_cores: int = 0
    memory_bytes: int = 0
    system: str = ""
    devices: list[str] = []
    """GPUs the engine can offload to; empty on a CPU build."""


class Setup(AnswerSettings, frozen=True, kw_only=True):
    """Everything needed to repeat a set of comparisons. The seed is that of the first run of a prompt; each repetition
    uses the next."""

    date: str
    """ISO 8601, with the offset from UTC."""
    app_version: str
    engine: str
    """As in `app.protocol.events.Hello`."""
    python: str = ""
    machine: Machine
    servers: list[str] = msgspec.field(default_factory=list)
    """Kind and version of the model's server, and of a second one that answered without a draft. Empty for local files.
    """
    target: ModelFile
    draft: ModelFile | None = None
    head: ModelFile | None = None
    """The file with the head in use, possibly the target's."""
    head_drafter: DrafterName = "mtp"
    """The drafter that uses that head."""
    medusa: ModelFile | None = None
    """The file with Medusa heads."""
    drafters: list[DrafterChoice] = msgspec.field(default_factory=list)
    """Those that were compared with each other; empty: ``drafter`` alone."""
    drafter_bytes: dict[DrafterChoice, int] = msgspec.field(default_factory=dict)
    """The memory that a drafter needs in addition to the target, from the memory plan."""
    template: str = "model"
    context_length: int = 0
    threads: int = 0
    target_gpu_layers: int = 0
    draft_gpu_layers: int = 0
    kv_type: str = "f16"
    batch_size: int = 512
    micro_batch_size: int = 512
    load_options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Other `LoadSettings` that differ from the defaults, and ``batch_threads`` if it differs from ``threads``."""
    seed: int = 0
    repeat: int = 1
    prompt_set: str = ""
    """File name, ``bundled``, or empty for a single prompt from a chat."""
    prompt_set_sha256: str = ""
    kinds: list[str] = msgspec.field(default_factory=list)
    """The kinds of prompts that were used; empty for all."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Measured decode speeds by draft length, over the same prompts and seeds."""

    drafter: DrafterChoice = "auto"
    lengths: list[int]
    speeds: list[float | None]
    """Tokens per second at each of ``lengths``: the tokens of all answers ÷ their time."""
    auto: float | None = None
    """The speed of ``auto`` with the same prompts."""
    auto_length: float | None = None
    """The average number of tokens that ``auto`` tested per pass: its place on the curve."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A set of comparisons and how to repeat it."""

    setup: Setup
    comparisons: list[Comparison]
    planned: int = 0
    """How many comparisons were planned; fewer are present after a stop or with skipped prompts."""
    skipped: list[Skipped] = []
    curves: list[Curve] = []
    """One for each drafter."""
