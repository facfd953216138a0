"""A child process that speaks the engine's protocol and misbehaves on demand.

Started as ``python -m tests.ui.scripted_engine WAY``.

It computes nothing; it is there for ends, hangs and violations that a sound engine does not show.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time

import msgspec

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
    ScoreTokens,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    Device,
    DraftFigures,
    Event,
    Figures,
    Forgotten,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Hello,
    LoadFailed,
    LoadProgressed,
    MemoryRead,
    ModelInfo,
    PairLoaded,
    Piece,
    PlainMeasured,
    Pong,
    Round,
    RoundsReceived,
    SpeedChange,
    StartFailed,
    TextChecked,
    TokensCounted,
    TokensScored,
)
from app.protocol.frames import FrameReader, decode_command, encode_frame
from app.protocol.remote import Connect, RemoteModel, ServedModel, Server, ServerFailure

DEVICES = [Device(name="CUDA0", description="Scripted GPU", total_bytes=8_000, free_bytes=6_000)]
PLAIN_WORDS = ("Hello", " there", ",", " my", " friend", ".")
OTHER_WORDS = ("Hello", " there", ",", " my", " foe", ".")
CONTEXT_LENGTH = 2048
DRAFT_FIGURES = DraftFigures(
    drafted=8, tested=7, accepted=5, acceptance_rate=5 / 7, verify_passes=2, mean_acceptance_length=3.5
)


def send(*events: Event) -> None:
    raw(b"".join(encode_frame(event) for event in events))


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def hang() -> None:
    while True:
        time.sleep(60)


class ScriptedEngine:
    """Answers commands; ``behavior`` names the one thing it does differently."""

    def __init__(self, behavior: str) -> None:
        self.behavior = behavior
        self.chat: list[Message] = []
        self.busy_with = 0
        self.loading = 0
        self.loads = 0
        self.calls = 0

    def run(self) -> None:
        log(f"scripted engine, behavior {self.behavior}")
        if self.behavior == "early":
            send(LoadProgressed(request=1, stage="target", fraction=0.5))
        if self.behavior == "mute":
            hang()
        if self.behavior == "unable":
            send(StartFailed(message="Nothing here runs on this processor."))
            sys.exit(1)
        protocol = 99 if self.behavior == "newer" else PROTOCOL_VERSION
        send(Hello(protocol=protocol, engine="scripted", devices=DEVICES))
        if self.behavior == "exit":
            log("nothing to live for")
            sys.exit(3)
        reader = FrameReader()
        while data := os.read(0, 65536):
            for body in reader.feed(data):
                self.obey(decode_command(body))

    def obey(self, command: Command) -> None:  # noqa: C901 - one case a command
        match command:
            case Load():
                self.load(command)
            case Connect():
                self.connect(command)
            case ChatPart():
                self.hear(command)
            case Generate():
                self.hear(command)
                self.generate(msgspec.structs.replace(command, messages=self.chat, kept=0))
            case MeasurePlain():
                send(PlainMeasured(request=command.request, tokens=64, decode_tokens_per_second=40.0))
            case ScoreTokens():
                self.score(command)
            case CountTokens():
                self.count(command)
            case CheckText():
                tokens = [100 + place for place, _ in enumerate(command.text.split())]
                send(TextChecked(request=command.request, tokens=tokens))
            case Cancel():
                self.cancel()
            case Forget():
                self.forget()
            case Ping():
                self.pong()
            case ReadMemory():
                send(MemoryRead(devices=DEVICES, own_bytes=123))
            case Quit():
                self.quit()

    def hear(self, command: ChatPart | CountTokens | Generate) -> None:
        self.chat = [*self.chat[: command.kept], *command.messages]

    def count(self, command: CountTokens) -> None:
        """A token a word; "full" leaves out the first two messages behind the system prompt."""
        self.hear(command)
        system = [message for message in self.chat[:1] if message.role == "system"]
        dropped = 2 if self.behavior == "full" and len(self.chat) - len(system) > 2 else 0
        kept = self.chat[len(system) + dropped :]
        send(
            TokensCounted(
                request=command.request,
                system=words_of(*(message.content for message in system)),
                messages=words_of(*(message.content for message in kept)),
                text=words_of(command.text) + command.attached,
                parts=[words_of(part) for part in command.parts],
                context_length=CONTEXT_LENGTH,
                dropped=dropped,
                first_dropped=len(system) if dropped else 0,
                tools=words_of(*(tool.description for tool in command.tools.tools)) if command.tools else 0,
            )
        )

    def forget(self) -> None:
        self.chat = []
        log("forgotten")
        if self.behavior != "unforgetting":
            send(Forgotten())

    def quit(self) -> None:
        if self.behavior == "stubborn":
            hang()
        sys.exit(0)

    def pong(self) -> None:
        if self.behavior != "silent":
            stuck = 1000.0 if self.behavior == "stuck" else 0.0
            send(Pong(busy=bool(self.busy_with), seconds_since_progress=stuck))

    def load(self, command: Load) -> None:
        send(LoadProgressed(request=command.request, stage="target", fraction=0.5))
        if self.behavior == "slow load":
            self.loading = command.request
            return
        if self.behavior == "no load":
            send(LoadFailed(request=command.request, message="The file is not a GGUF model."))
            return
        target = ModelInfo(path=command.target, name="scripted", inner_name="Scripted 8k Ep2")
        draft = ModelInfo(path=command.draft, name="scripted draft") if command.draft else None
        self.loads += 1
        is_slower = self.behavior == "slower" and self.loads == 1
        slower = SpeedChange(before="engine 1", now="engine 2", times=1.3) if is_slower else None
        send(
            PairLoaded(
                request=command.request,
                target=target,
                draft=draft,
                all_drafters=["ngram", "model"] if draft else ["ngram"],
                context_length=CONTEXT_LENGTH,
                exact_unit=8 if "differ" in self.behavior else 1,
                slower=slower,
            )
        )

    def connect(self, command: Connect) -> None:
        """A server anywhere; "busy" and "down" are about it, "counting" counts."""
        request, host = command.request, command.address.partition("://")[2]
        if "busy" in self.behavior:
            send(LoadProgressed(request=request, stage="server", fraction=0.0))
            self.loading = request
        elif "down" in self.behavior:
            send(LoadFailed(request=request, message=f"Nothing answers at {host}.", cause="unreachable"))
        elif command.loopback_only:
            send(LoadFailed(request=request, message=f"{host} is another computer.", cause="offline"))
        else:
            server = Server(
                kind="vllm",
                version="0.29.0",
                address=command.address,
                models=[ServedModel(id="far")],
                is_loopback=host.startswith("127."),
            )
            remote = RemoteModel(
                server=server,
                model=command.model or "far",
                figures="reply",
                figures_note="It has to be started with --figures.",
                refused={"overflow": "It is up to vLLM.", "top_k": "vLLM doesn't have this setting."},
                formats=["json_schema"],
                can_continue=True,
                can_count="counting" in self.behavior,
                can_switch_drafting="switching" in self.behavior,
            )
            target = ModelInfo(path="", name=remote.model)
            send(PairLoaded(request=request, target=target, context_length=CONTEXT_LENGTH, remote=remote))

    def answer_far(self, command: Generate) -> None:
        """As a server: how many messages it got, and which values were chosen. "cut" and "lost" aren't finished."""
        request = command.request
        if not command.continue_last and ("cut" in self.behavior or "lost" in self.behavior):
            is_cut = "cut" in self.behavior
            if is_cut:
                send(RoundsReceived(request=request, rounds=[round_of(Piece(text="Hello there"))]))
            cause: ServerFailure = "cut" if is_cut else "unreachable"
            figures = Figures(prompt_tokens=12, completion_tokens=1, draft=DraftFigures(source="none"))
            send(GenerationFailed(request=request, message=f"It is {cause}.", cause=cause, figures=figures))
            return
        text = f" {len(command.messages)} {','.join(command.chosen or [])}".rstrip()
        send(RoundsReceived(request=request, rounds=[round_of(Piece(text=text))]))
        self.finish(request, "end")

    def generate(self, command: Generate) -> None:
        request = command.request
        if self.behavior == "stale":
            send(RoundsReceived(request=request + 7, rounds=[round_of("not yours")]))
        send(self.started(command))
        if self.behavior == "refusing":
            send(GenerationFailed(request=request, message="The message has 9,000 tokens, the context 2,048."))
            return
        if self.behavior.startswith(("compare", "far")):
            write = self.write_words if self.behavior.startswith("compare") else self.answer_far
            write(command)
            return
        text = (
            f"{command.draft_length} {command.drafter} {command.propose}" if self.behavior == "echo" else "Hello there"
        )
        send(RoundsReceived(request=request, rounds=[round_of(text)]))
        self._call(command)
        match self.behavior:
            case "garbage":
                raw(struct.pack("<I", 4) + b"what")
            case "oversized":
                raw(struct.pack("<I", 2**31))
            case "wrong field":
                raw(frame(b'{"type": "rounds_received", "request": "one", "rounds": []}'))
            case "unknown":
                raw(frame(b'{"type": "own_the_window", "request": 1}'))
            case "endless" | "deaf" | "silent" | "stuck" | "endless if asked" if self._is_endless(command):
                self.busy_with = request
            case "signal 6" | "signal 9" | "signal 11":
                log("about to die")
                os.kill(os.getpid(), int(self.behavior.split()[1]))
                hang()
            case _:
                self.finish(request, "end")

    def _call(self, command: Generate) -> None:
        """For questions like "call echo": two calls, one after the other."""
        last = max((place for place, one in enumerate(command.messages) if one.role == "user"), default=0)
        name = command.messages[last].content.partition("call ")[2].partition(" ")[0]
        is_done = len(command.messages) - last > 4
        offered = [tool.name for tool in command.tools.tools] if command.tools else []
        if name in offered and not is_done:
            self.calls += 1
            call = f'{{"name": "{name}", "arguments": {{"text": "{os.getpid()} {self.calls}"}}}}'
            text = f"<tool_call>\n{call}\n</tool_call>"
            send(RoundsReceived(request=command.request, rounds=[round_of(text)]))

    def _is_endless(self, command: Generate) -> bool:
        return self.behavior != "endless if asked" or "endless" in command.messages[-1].content

    def started(self, command: Generate) -> GenerationStarted:
        first = sum(message.role == "system" for message in command.messages[:1])
        first += 2 if command.overflow == "keep_ends" else 0
        dropped = 2 if self.behavior == "forgetful" and len(command.messages) > 2 else 0
        return GenerationStarted(
            request=command.request,
            seed=command.seed or 7,
            prompt_tokens=12,
            dropped_messages=dropped,
            first_dropped=first if dropped else 0,
        )

    def write_words(self, command: Generate) -> None:
        """An answer of several tokens, with draft another one where the behavior says so."""
        request, is_drafted = command.request, command.draft_length != 0
        if "picky" in self.behavior and "too long" in command.messages[-1].content:
            send(GenerationFailed(request=request, message="The message has 9,000 tokens, the context 2,048."))
            return
        if "dies" in self.behavior and is_drafted and command.max_tokens != 1:
            os.kill(os.getpid(), signal.SIGKILL)
            hang()
        words = OTHER_WORDS if is_drafted and "differ" in self.behavior else PLAIN_WORDS
        is_nameless = "nameless" in self.behavior
        for index, word in enumerate(words[: command.max_tokens]):
            kept = is_drafted and index > 0 and not is_nameless
            piece = Piece(text=word, id=-1 if is_nameless else id_of(word), drafter="model" if kept else None)
            send(RoundsReceived(request=request, rounds=[round_of(piece, index, 0.01 if is_drafted else 0.02)]))
        if "endless" in self.behavior and command.max_tokens != 1:
            self.busy_with = request
            return
        draft = DraftFigures() if is_nameless or not is_drafted else DRAFT_FIGURES
        speed = 80.0 if is_drafted else 40.0
        figures = Figures(completion_tokens=len(words), decode_tokens_per_second=speed, total_seconds=0.2, draft=draft)
        failure = "It ran out of memory." if is_drafted and "fails" in self.behavior else None
        send(GenerationFinished(request=request, finish_reason="end", figures=figures, draft_failure=failure))

    def score(self, command: ScoreTokens) -> None:
        if "unscored" in self.behavior:
            send(GenerationFailed(request=command.request, message="It does not fit."))
            return
        gap = 2.0 if "far" in self.behavior else 0.004
        send(
            TokensScored(
                request=command.request,
                logits=[17.31, 17.31 - gap],
                scores=[-0.5, -0.5 - gap],
                could_win=[True, gap < 1],
                rounding=0.02,
            )
        )

    def finish(self, request: int, reason: str) -> None:
        figures = Figures(
            prompt_tokens=12, completion_tokens=2, time_to_first_token_seconds=0.1, decode_tokens_per_second=74.0
        )
        finished = GenerationFinished(
            request=request,
            finish_reason="cancelled" if reason == "cancelled" else "end",
            figures=figures,
            draft_failure="The draft ran out of memory." if self.behavior == "draft fails" else None,
        )
        send(finished)
        self.busy_with = 0

    def cancel(self) -> None:
        if self.loading:
            send(LoadFailed(request=self.loading, message="Loading was canceled.", cancelled=True))
            self.loading = 0
        if self.busy_with and self.behavior != "deaf":
            self.finish(self.busy_with, "cancelled")


def words_of(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


def id_of(word: str) -> int:
    return 10 + sorted({*PLAIN_WORDS, *OTHER_WORDS}).index(word)


def round_of(piece: str | Piece, index: int = 0, seconds: float = 0.0) -> Round:
    shown = Piece(text=piece, id=5) if isinstance(piece, str) else piece
    return Round(index=index, verify_passes=1, pieces=[shown], tokens=1, time=index * seconds)


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


if __name__ == "__main__":
    ScriptedEngine(sys.argv[1]).run()
