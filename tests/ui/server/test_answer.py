"""An answer in parts is the answer as a whole, wherever it is interrupted; with the real engine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Piece,
    PromptProgressed,
    Round,
    RoundsReceived,
)
from app.protocol.options import AnswerFormat, LoadSettings, Sampling
from app.protocol.statistics import Statistics
from app.protocol.tools import FORMATS, ToolFormatName, ToolUse
from app.ui.server.serving import ServedAnswer
from tests.support.matrix import in_proof
from tests.support.tool_models import LIGHT, WEATHER, make_tool_model

ASKED = Generate(
    request=41,
    messages=[Message(role="user", content="Well?")],
    seed=5,
    sampling=Sampling(temperature=1.0),
    max_tokens=120,
    overflow="stop",
    private=True,
)


@dataclass
class Heard:
    """What the program hears."""

    started: list[GenerationStarted] = field(default_factory=list)
    progress: list[PromptProgressed] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    finished: list[GenerationFinished] = field(default_factory=list)
    parts: int = 0

    @property
    def figures(self) -> Figures:
        return self.finished[0].figures

    def pieces(self) -> list[Piece]:
        return [piece for one in self.rounds for piece in one.pieces]

    def text(self, *, thinking: bool = False) -> str:
        return "".join(piece.text for piece in self.pieces() if piece.thinking is thinking)

    def hear(self, message: object) -> None:
        match message:
            case GenerationStarted():
                self.started.append(message)
            case PromptProgressed():
                self.progress.append(message)
            case RoundsReceived():
                self.rounds += message.rounds
            case GenerationFinished():
                self.finished.append(message)


@pytest.fixture(scope="module")
def engine(wordy_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("engine-home")))
        made = Engine()
        settings = LoadSettings(threads=1, context_length=512)
        made.load(
            Load(request=1, target=str(wordy_pair[0]), draft=str(wordy_pair[1]), settings=settings), lambda _: None
        )
        yield made
        made.unload()


def served(engine: Engine, command: Generate, rounds_a_part: int = 0) -> Heard:
    """Have it written, with an interruption whenever so many rounds have come (0: none)."""
    answer, heard = ServedAnswer("Zed", command), Heard()
    while not heard.finished:
        heard.parts += 1
        finished = part(engine, answer, heard, rounds_a_part)
        if finished.finish_reason == "cancelled":
            answer.interrupted(finished)
        else:
            for message in answer.finished(finished):
                heard.hear(message)
    return heard


def part(engine: Engine, answer: ServedAnswer, heard: Heard, rounds: int) -> GenerationFinished:
    engine.ready()
    count = 0
    for event in engine.generate(answer.command()):
        match event:
            case GenerationStarted():
                heard.hear(answer.started(event))
            case PromptProgressed():
                heard.hear(answer.progressed(event))
            case Round():
                heard.hear(answer.advanced(RoundsReceived(request=1, rounds=[event])))
                count += 1
                if count == rounds:
                    engine.cancel()
            case GenerationFinished():
                return event
    raise AssertionError("it always ends")


@pytest.mark.parametrize("rounds", [3, *in_proof([1, 2, 7])])
@pytest.mark.parametrize(
    "options",
    [
        {"thinking_budget": 40},
        {"drafter": "ngram", "thinking": "off"},
        {"stop": ["no.", "yes so", "then then"], "thinking": "off"},
        {"stop": ["yes"], "thinking_budget": 30},
        {"format": AnswerFormat(kind="regex", source="( so| then| yes| no){60}"), "thinking": "off"},
        {"sampling": Sampling(temperature=1.0, repetition_penalty=1.2, penalty_window=80)},
        *in_proof(
            [
                {},
                {"thinking": "off"},
                {"draft_length": 0},
                {"stop": ["no no no no no"], "thinking": "off"},
                {"format": AnswerFormat(kind="json_object"), "thinking_budget": 20, "max_tokens": 60},
            ]
        ),
    ],
)
def test_parts_are_the_same_as_the_whole(engine: Engine, options: dict[str, object], rounds: int) -> None:
    command = msgspec.structs.replace(ASKED, **options)
    whole, parts = served(engine, command), served(engine, command, rounds)
    for thinking in (False, True):
        assert parts.text(thinking=thinking) == whole.text(thinking=thinking)
    assert [piece.id for piece in parts.pieces()] == [piece.id for piece in whole.pieces()]
    assert parts.finished[0].finish_reason == whole.finished[0].finish_reason
    assert parts.finished[0].stop_string == whole.finished[0].stop_string
    assert len(parts.started) == len(parts.finished) == 1
    assert parts.started[0].request == parts.finished[0].request == 41


@pytest.mark.parametrize("name", ["hermes", *in_proof(name for name in FORMATS if name and name != "hermes")])
def test_calls_of_tools_in_parts(tmp_path: Path, name: ToolFormatName) -> None:
    engine = Engine()
    target = make_tool_model(tmp_path / "target.gguf", name, calls=1.0)
    engine.load(Load(request=1, target=str(target), settings=LoadSettings(threads=1)), lambda _: None)
    use = ToolUse(tools=[WEATHER, LIGHT], required=True)
    warm = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    try:
        for seed in range(3):
            command = msgspec.structs.replace(ASKED, seed=seed, tools=use, sampling=warm, max_tokens=600)
            whole, parts = served(engine, command), served(engine, command, 4)
            assert parts.parts > 1
            assert parts.text() == whole.text()
    finally:
        engine.unload()


@pytest.mark.parametrize("seed", [0, 1, 2, *in_proof(range(3, 12))])
def test_a_stop_string_wherever_it_is_cut(engine: Engine, seed: int) -> None:
    """Its beginning is held back, and an interruption brings that to light: a program must never see it."""
    stops = ["no no", "so then", "yes.", "then yes so"]
    command = msgspec.structs.replace(ASKED, seed=seed, stop=stops, thinking="off", draft_length=0)
    whole, parts = served(engine, command), served(engine, command, 1)
    assert whole.finished[0].finish_reason == "stop_string" and parts.parts > 1
    assert parts.text() == whole.text()
    seen = ""
    for one in parts.rounds:
        seen += "".join(piece.text for piece in one.pieces)
        assert whole.text().startswith(seen)


def test_figures_add_up(engine: Engine) -> None:
    whole, parts = served(engine, ASKED), served(engine, ASKED, 4)
    statistics = Statistics()
    for one in parts.rounds:
        statistics.add(one)
    figures = parts.figures
    assert figures.completion_tokens == whole.figures.completion_tokens == statistics.tokens == 120
    assert figures.draft.verify_passes == statistics.verify_passes
    assert figures.draft.accepted == statistics.accepted
    assert figures.draft.accepted_per_position == statistics.accepted_per_position
    # The tokens are those that were accepted, one of each pass, and the first of each part.
    assert figures.draft.accepted + figures.draft.verify_passes + parts.parts == 120
    assert figures.prompt_tokens == whole.figures.prompt_tokens
    assert figures.thinking_tokens == whole.figures.thinking_tokens
    assert figures.decode_tokens_per_second and figures.prompt_tokens_per_second
    assert figures.time_to_first_token_seconds is not None
    assert figures.time_to_first_token_seconds < figures.total_seconds
    assert figures.draft_seconds + figures.verify_seconds + figures.other_seconds <= figures.total_seconds


def test_rounds_are_numbered_through_and_time_never_goes_back(engine: Engine) -> None:
    parts = served(engine, ASKED, 3)
    indexes = [one.index for one in parts.rounds if one.tokens]
    assert indexes == sorted(set(indexes))
    for values in ([one.time for one in parts.rounds], [float(piece.round) for piece in parts.pieces()]):
        assert values == sorted(values)


def test_an_interruption_while_the_prompt_is_processed(engine: Engine) -> None:
    command = msgspec.structs.replace(ASKED, max_tokens=10)
    answer, heard = ServedAnswer("Zed", command), Heard()
    empty = GenerationFinished(request=1, finish_reason="cancelled", figures=Figures(total_seconds=0.5))
    heard.hear(answer.started(GenerationStarted(request=1, seed=5, prompt_tokens=9, cached_tokens=2)))
    heard.hear(answer.progressed(PromptProgressed(request=1, done=5, total=9)))
    answer.interrupted(empty)
    heard.hear(answer.progressed(PromptProgressed(request=1, done=4, total=9)))
    finished = part(engine, answer, heard, 0)
    for message in answer.finished(finished):
        heard.hear(message)
    assert heard.text(thinking=True) == served(engine, command).text(thinking=True)
    assert len(heard.started) == 1 and [one.done for one in heard.progress][:1] == [5]
    assert (heard.figures.time_to_first_token_seconds or 0) > 0.5


def test_a_time_is_that_of_the_first_part() -> None:
    """A template may write it into the prompt, which must not change."""
    answer = ServedAnswer("Zed", ASKED)
    first = answer.command().messages[0].sent_at
    assert first is not None and answer.command().messages[0].sent_at == first
    told = ServedAnswer(
        "Zed", msgspec.structs.replace(ASKED, messages=[Message(role="user", content="?", sent_at=3.0)])
    )
    assert told.command().messages[0].sent_at == 3.0


def test_one_that_is_interrupted_at_the_end_of_the_context(engine: Engine) -> None:
    """There the engine begins nothing any more; the program gets what there is."""
    command = msgspec.structs.replace(ASKED, max_tokens=None, draft_length=0)
    whole = served(engine, command)
    answer, heard = ServedAnswer("Zed", command), Heard()
    answer.interrupted(part(engine, answer, heard, len(whole.rounds) - 6))
    failed = GenerationFailed(request=1, message="This answer can't be continued.", prompt_tokens=500)
    for message in answer.failed(failed):
        heard.hear(message)
    assert heard.finished[0].finish_reason == "context"
    assert whole.text(thinking=True).startswith(heard.text(thinking=True))
    assert isinstance(ServedAnswer("Zed", command).failed(failed)[0], GenerationFailed)


def test_live_speed() -> None:
    answer = ServedAnswer("Zed", ASKED)
    assert answer.tokens_per_second() is None
    rounds = [Round(index=n, verify_passes=int(n > 0), tokens=2, time=0.1 * n) for n in range(11)]
    answer.advanced(RoundsReceived(request=1, rounds=rounds))
    assert answer.tokens == 22
    assert answer.tokens_per_second() == pytest.approx(20.0)
