"""The engine as a real child process."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.engine.host.engine import Engine
from app.engine.host.worker import Worker
from app.protocol.commands import (
    Cancel,
    ChatPart,
    CheckText,
    Command,
    CountTokens,
    Forget,
    Generate,
    Load,
    MeasurePlain,
    Message,
    Ping,
    Quit,
    ReadMemory,
    StopThinking,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    Forgotten,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Hello,
    LoadFailed,
    MemoryRead,
    PairLoaded,
    PlainMeasured,
    Pong,
    Round,
    RoundsReceived,
    StartFailed,
    TextChecked,
    TokensCounted,
)
from app.protocol.frames import FrameReader, decode_event
from app.protocol.options import LoadSettings, Sampling
from app.system import KnownError
from tests.support.engine_process import ROOT, EngineProcess
from tests.support.gguf_files import CHATML_TEMPLATE
from tests.support.mtp_models import make_table_model
from tests.support.pairs import HOT, Pair

GREEDY = Sampling(temperature=0)


@pytest.fixture
def process() -> Iterator[EngineProcess]:
    with EngineProcess() as process:
        yield process


def endless(path: Path, **options: Any) -> Load:
    """A model whose answer goes on until it is stopped, on every processor; drawn weights may choose an end."""
    make_table_model(path, "glm4moe", context_length=8192, **options)
    return Load(request=1, target=str(path), settings=LoadSettings(context_length=8192))


def load(pair: Pair, context_length: int = 0) -> Load:
    settings = LoadSettings(context_length=context_length)
    return Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=settings)


def ask(request: int = 2, **options: object) -> Generate:
    return Generate(request=request, messages=[Message(role="user", content="hi")], seed=1, **options)  # type: ignore[arg-type]


def test_a_whole_conversation(process: EngineProcess, random_pair: Pair) -> None:
    hello = process.next()
    assert isinstance(hello, Hello) and hello.protocol == PROTOCOL_VERSION and "llama.cpp" in hello.engine
    process.send(load(random_pair))
    pair = process.until(PairLoaded)
    assert pair.draft is not None and pair.request == 1
    process.send(ask(max_tokens=30))
    started = process.until(GenerationStarted)
    rounds = []
    while isinstance(event := process.next(), RoundsReceived):
        rounds += event.rounds
    assert isinstance(event, GenerationFinished)
    assert started.request == event.request == 2
    assert sum(r.tokens for r in rounds) == event.figures.completion_tokens > 1
    process.send(MeasurePlain(request=3, messages=[Message(role="user", content="hi")], sampling=HOT, max_tokens=20))
    assert process.until(PlainMeasured).decode_tokens_per_second > 0
    process.send(Quit())
    assert process.wait() == 0
    assert process.process.stderr is not None
    assert b"loading target" in process.process.stderr.read()


def test_cancel_and_ping_are_answered_while_it_computes(process: EngineProcess, tmp_path: Path) -> None:
    process.send(endless(tmp_path / "target.gguf"), ask(sampling=GREEDY))
    process.until(RoundsReceived)
    process.send(Ping())
    pong = process.until(Pong)
    assert pong.busy and pong.seconds_since_progress < 30
    process.send(Cancel())
    finished = process.until(GenerationFinished)
    assert finished.finish_reason == "cancelled"
    process.send(Ping())
    while process.until(Pong).busy:  # the last event leaves a moment before the computing thread is free
        process.send(Ping())


def test_thinking_is_stopped_while_it_computes(process: EngineProcess, tmp_path: Path) -> None:
    thinks = CHATML_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    process.send(endless(tmp_path / "target.gguf", chat_template=thinks), ask(sampling=GREEDY, draft_length=0))
    assert {p.thinking for r in process.until(RoundsReceived).rounds for p in r.pieces} <= {True}
    process.send(StopThinking())
    while not any(round_.forced for round_ in process.until(RoundsReceived).rounds):
        pass
    process.send(Cancel())
    process.until(GenerationFinished)


def test_tokens_are_counted_while_it_computes(process: EngineProcess, tmp_path: Path) -> None:
    messages = [Message(role="system", content="Be brief."), Message(role="user", content="hi")]
    process.send(endless(tmp_path / "target.gguf"))
    process.until(PairLoaded)
    process.send(CountTokens(request=1, messages=[]))
    assert process.until(TokensCounted).request == 1  # the process that renders templates has started by now
    process.send(ask(sampling=GREEDY))
    process.until(RoundsReceived)
    process.send(CheckText(request=3, text="so"), CountTokens(request=4, messages=messages, text="and now"))
    events = [process.next()]
    while not isinstance(events[-1], TokensCounted):
        events.append(process.next())
    [checked] = [event for event in events if isinstance(event, TextChecked)]
    counted = events[-1]
    assert (checked.request, counted.request) == (3, 4) and not any(isinstance(e, GenerationFinished) for e in events)
    assert checked.tokens and min(counted.system, counted.messages, counted.text) > 0
    assert counted.context_length == 8192 and counted.dropped == 0


def test_a_chat_is_put_together_from_its_parts(process: EngineProcess, random_pair: Pair) -> None:
    """For the next count and the next answer; a `Forget` leaves nothing of it."""
    chat = [Message(role="user", content="hello " * 20), Message(role="assistant", content="there " * 20)]
    question = Message(role="user", content="hi")
    process.send(load(random_pair, context_length=8192))
    process.until(PairLoaded)

    def counted(*commands: Command) -> int:
        process.send(*commands)
        return process.until(TokensCounted).messages

    whole = counted(CountTokens(request=1, messages=[*chat, question]))
    assert counted(ChatPart(messages=chat), CountTokens(request=2, messages=[question], kept=2)) == whole
    first = counted(ChatPart(messages=chat[:1]), CountTokens(request=3, messages=[], kept=1))
    assert counted(CountTokens(request=4, messages=[chat[1], question], kept=1)) == whole > first
    prompts = []
    for command in (
        Generate(request=5, messages=[question], kept=2, max_tokens=1),
        Generate(request=6, messages=[*chat, question], max_tokens=1),
        Generate(request=7, messages=[question], max_tokens=1),
    ):
        process.send(command)
        prompts.append(process.until(GenerationStarted).prompt_tokens)
        process.until(GenerationFinished)
    assert prompts[0] == prompts[1] > prompts[2]
    assert counted(ChatPart(messages=chat), Forget(), CountTokens(request=8, messages=[], kept=2)) == 0


def test_memory_is_told_at_once_also_while_it_computes(process: EngineProcess, tmp_path: Path) -> None:
    hello = process.next()
    process.send(ReadMemory())
    before = process.until(MemoryRead)
    assert isinstance(hello, Hello) and [device.name for device in before.devices] == [d.name for d in hello.devices]
    process.send(endless(tmp_path / "target.gguf"), ask(sampling=GREEDY))
    process.until(RoundsReceived)
    process.send(ReadMemory())
    held = process.until(MemoryRead).own_bytes
    assert before.own_bytes < 8 * 1024 * 1024 < held
    assert hello.devices or held < 256 * 1024 * 1024  # a GPU's driver has buffers of its own
    process.send(Cancel())
    assert process.until(GenerationFinished).finish_reason == "cancelled"


def test_quit_does_not_wait_for_what_is_queued(process: EngineProcess, tmp_path: Path) -> None:
    process.send(endless(tmp_path / "target.gguf"))
    process.until(PairLoaded)
    process.send(ask(2, sampling=GREEDY, max_tokens=2000), ask(3, sampling=GREEDY, max_tokens=2000), Quit())
    assert [process.until(GenerationFinished).finish_reason for _ in range(2)] == ["cancelled", "cancelled"]
    assert process.wait() == 0


def test_what_was_written_before_a_failure_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_engine: Engine, _command: Generate) -> Iterator[Round]:
        yield Round(index=0, verify_passes=0, tokens=1, time=0.001)
        raise KnownError("no more")

    monkeypatch.setattr(Engine, "generate", failing)
    events = io.BytesIO()
    Worker(io.BytesIO(), events)._carry_out(1, ask())
    received, failed = map(decode_event, FrameReader().feed(events.getvalue()))
    assert isinstance(received, RoundsReceived) and len(received.rounds) == 1
    assert isinstance(failed, GenerationFailed) and failed.message == "no more"


def test_errors_are_sentences_and_the_process_goes_on(
    process: EngineProcess, random_pair: Pair, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(random_pair[0].read_bytes()[:5000])
    process.send(Load(request=1, target=str(broken)))
    failed = process.until(LoadFailed)
    assert "broken.gguf" in failed.message and not failed.cancelled
    process.send(load(random_pair))
    assert process.until(PairLoaded).target.name


EAGER = "tests.support.eager_engine"
QUESTION = Message(role="user", content="What is the way of the world? " * 8)


def saved_files(home: Path) -> list[Path]:
    folder = home / "cache" / "chats"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def cached_tokens(process: EngineProcess, pair: Pair) -> int:
    process.send(load(pair))
    process.until(PairLoaded)
    process.send(Generate(request=2, messages=[QUESTION], seed=1, max_tokens=20))
    started = process.until(GenerationStarted)
    process.until(GenerationFinished)
    return started.cached_tokens


def end_as_the_window_does(process: EngineProcess) -> int:
    """Quit and the end of the input at once."""
    process.send(Quit())
    assert process.process.stdin is not None
    process.process.stdin.close()
    return process.wait()


def test_what_a_quitting_engine_held_is_there_for_the_next_one(random_pair: Pair, home: Path) -> None:
    for expected in (False, True):
        with EngineProcess(EAGER) as process:
            assert (cached_tokens(process, random_pair) > 0) is expected
            assert end_as_the_window_does(process) == 0
        assert {path.suffix for path in saved_files(home)} == {".kept"}


def test_an_engine_killed_while_it_writes_leaves_nothing_that_is_read(random_pair: Pair, home: Path) -> None:
    with EngineProcess(EAGER, "dies") as process:
        assert cached_tokens(process, random_pair) == 0
        assert end_as_the_window_does(process) == -signal.SIGKILL
    assert [path.suffix for path in saved_files(home)] == [".part"]
    with EngineProcess(EAGER) as process:
        assert cached_tokens(process, random_pair) == 0
        process.send(Forget())
        process.until(Forgotten)
        assert end_as_the_window_does(process) == 0
    assert saved_files(home) == []


def test_forgetting_erases_what_is_on_disk_at_once(random_pair: Pair, home: Path, tmp_path: Path) -> None:
    with EngineProcess(EAGER) as process:
        cached_tokens(process, random_pair)
        end_as_the_window_does(process)
    assert saved_files(home)
    with EngineProcess() as process:
        process.send(endless(tmp_path / "target.gguf"), ask(3, sampling=GREEDY))
        process.until(RoundsReceived)
        process.send(Forget(), Ping())
        assert process.until(Pong).busy
        assert saved_files(home) == []
        process.send(Cancel())
        process.until(GenerationFinished)
        process.until(Forgotten)  # what it computed with is gone now too


def test_it_ends_when_the_window_is_gone(process: EngineProcess, tmp_path: Path) -> None:
    process.send(endless(tmp_path / "target.gguf"), ask(sampling=GREEDY))
    process.until(RoundsReceived)
    assert process.process.stdin is not None
    process.process.stdin.close()
    assert process.wait() == 0


def test_where_nothing_runs_on_the_processor_it_says_so_and_ends() -> None:
    script = (
        "import sys; from app.engine.llama import backend; from app.engine.host import worker\n"
        "backend._handles = lambda *kinds: []\n"
        "sys.exit(worker.run())"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=False)
    [event] = map(decode_event, FrameReader().feed(ended.stdout))
    assert isinstance(event, StartFailed) and "processor" in event.message
    assert ended.returncode == 1 and event.message in ended.stderr.decode()


def test_ctrl_c_is_left_to_the_window(process: EngineProcess) -> None:
    process.until(Hello)
    process.process.send_signal(signal.SIGINT)
    process.send(Ping())
    assert isinstance(process.until(Pong), Pong)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_no_orphan_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    """The parent hands its pipe end to a third process, so that only the kernel can tell the engine."""
    script = (
        "import os, subprocess, sys, time\n"
        "engine = subprocess.Popen([sys.executable, '-m', 'app', '--role=engine'], stdin=subprocess.PIPE,"
        " stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
        "os.set_inheritable(engine.stdin.fileno(), True)\n"
        "keeper = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "engine.stdout.read(4)\n"
        "print(engine.pid, keeper.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root)
    assert parent.stdout is not None
    engine, switcher = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        deadline = time.monotonic() + 20
        while _runs(engine):
            assert time.monotonic() < deadline, "the engine outlived its parent"
            os.sched_yield()
    finally:
        os.kill(switcher, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
