"""An engine process in asyncio's event loop: one request at a time, and questions beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from app import program
from app.client.connection import Connection, Question
from app.client.process import EngineEndedError, engine_command
from app.client.stalls import Stalled, Timings
from app.client.state import EngineExit, ExitCause, exit_cause, out_of_memory_kills
from app.errors import Canceled, KnownError
from app.protocol.commands import CheckText, CountPrompt, Generate, Load, Quit, Tokenize
from app.protocol.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    LoadProgressed,
    PairLoaded,
    PromptCounted,
    PromptProgressed,
    RoundsReceived,
    TextChecked,
    Tokenized,
)
from app.protocol.frames import ProtocolError
from app.protocol.framing import encode_frame
from app.protocol.remote import Connect
from app.protocol.serving import AnsweredQuestion, AsideQuestion

_log = logging.getLogger("slipstream.engine")
_TIMINGS = Timings(silence=60.0, no_progress=300.0, cancel=60.0, quit=10.0)
"""Nobody watches this engine, and a stalled one is ended, so be sure of it."""
_QUESTION_SECONDS = 30.0

GenerationEvent = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished


class GenerationFailedError(KnownError):
    """An answer failed; ``prompt_tokens``: how many tokens a prompt has that is too long, else 0."""

    def __init__(self, event: GenerationFailed) -> None:
        super().__init__(event.message)
        self.prompt_tokens = event.prompt_tokens


class TooLargeError(KnownError):
    """A chat with a message that is too long to be handed on; the sentence is for whoever sent it."""

    def __init__(self) -> None:
        super().__init__("A message of this chat is too long.")


class AsyncEngineProcess:
    """An engine process, from `start` to `close`.

    Whatever waits for it raises `EngineEndedError` when it ends; `ended` is set then.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """The process has ended, asked or not."""
        self._connection = Connection(_TIMINGS)
        self._process: asyncio.subprocess.Process | None = None
        self._events: asyncio.Queue[Event | EngineExit] = asyncio.Queue()
        """Those of the current request."""
        self._ending: asyncio.Future[None] | None = None
        """The end of the last request, which goes on when whoever made that is canceled twice."""
        self._questions: dict[int, asyncio.Future[AnsweredQuestion]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._memory_kills = out_of_memory_kills()
        self._exit: EngineExit | None = None
        self._wants_to_write = asyncio.Event()

    @property
    def process_id(self) -> int | None:
        """``None`` before `start`."""
        return self._process.pid if self._process else None

    async def start(self, command: Sequence[str] = ()) -> None:
        """``command``: what to run in the engine's place. Raises `EngineEndedError` where there can't be a process."""
        self._connection.start()
        words = command or engine_command("--no-chat-files")
        try:
            self._process = await asyncio.create_subprocess_exec(*words, **program.process_options())
        except OSError as error:
            reason = error.strerror or str(error)
            ended = self._connection.died(ExitCause.FAILED_TO_START, reason)
            self._fail(ended)
            raise EngineEndedError(ended) from error
        process = self._process
        self._tasks = [
            asyncio.create_task(work, name=name)
            for work, name in (
                (self._read(process), "engine-events"),
                (self._listen(process), "engine-log"),
                (self._write(process), "engine-commands"),
                (self._watch(process), "engine-watch"),
            )
        ]

    async def close(self) -> None:
        """End the process, by force if it doesn't end by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if self._connection.hello is not None and process.stdin is not None and process.returncode is None:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    process.stdin.write(encode_frame(Quit()))
                    process.stdin.close()
                    await asyncio.wait_for(process.wait(), _TIMINGS.quit)
        finally:
            if process.returncode is None:
                process.kill()
            self._connection.stop()
            await process.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._fail(self._exit or EngineExit(ExitCause.EXITED, "closed", self._connection.state))

    # ------------------------------------------------------------ requests

    async def load(
        self, command: Load | Connect, on_progress: Callable[[LoadProgressed], None] = lambda _: None
    ) -> PairLoaded:
        """Load a pair, or use a server's model. Raises `KnownError` if that fails, and `Canceled`."""
        self._check_running()
        self._connection.load(command)
        self._wants_to_write.set()
        async for event in self._answers():
            match event:
                case LoadProgressed():
                    on_progress(event)
                case LoadFailed():
                    raise Canceled if event.cancelled else KnownError(event.message)
                case PairLoaded():
                    return event
        raise AssertionError("a load always ends")

    async def generate(self, command: Generate) -> AsyncGenerator[GenerationEvent, None]:
        """Answer a chat; the last event is `GenerationFinished`. Close it early to cancel the answer, and wait for that
        to have happened. Raises `GenerationFailedError` if it fails.
        """
        if self._ending is not None:
            await asyncio.shield(self._ending)
        self._ask(command)
        try:
            async for event in self._answers():
                match event:
                    case GenerationFailed():
                        raise GenerationFailedError(event)
                    case GenerationStarted() | PromptProgressed() | RoundsReceived() | GenerationFinished():
                        yield event
        finally:
            self._ending = asyncio.ensure_future(self._end_request())
            await asyncio.shield(self._ending)

    async def check_text(self, question: CheckText) -> TextChecked:
        """Tokens that give a text. Raises `KnownError`."""
        answer = await self._answer(question)
        assert isinstance(answer, TextChecked)
        return answer

    async def count_prompt(self, question: CountPrompt) -> PromptCounted:
        """How many tokens the prompt for a chat has. Raises `KnownError`."""
        answer = await self._answer(question)
        assert isinstance(answer, PromptCounted)
        return answer

    async def tokenize(self, question: Tokenize) -> Tokenized:
        """The tokens of a text. Raises `KnownError`."""
        answer = await self._answer(question)
        assert isinstance(answer, Tokenized)
        return answer

    def _ask(self, command: Question) -> None:
        self._check_running()
        while not self._events.empty():
            self._events.get_nowait()
        try:
            self._connection.ask(command)
        except ProtocolError as error:
            raise TooLargeError from error
        self._wants_to_write.set()

    async def _answers(self) -> AsyncIterator[Event]:
        """The events of the current request."""
        while True:
            if self._events.empty() and not self._connection.request:
                return
            event = await self._events.get()
            if isinstance(event, EngineExit):
                self._events.put_nowait(event)  # for whoever asks next
                raise EngineEndedError(event)
            yield event

    async def _end_request(self) -> None:
        """Cancel what still runs, and wait for its end."""
        if not self._connection.state.is_busy:
            return
        self._connection.cancel()
        self._wants_to_write.set()
        with contextlib.suppress(EngineEndedError):
            async for _ in self._answers():
                pass

    async def _answer(self, question: AsideQuestion) -> AnsweredQuestion:
        """The answer to a question, which there is none to where it can't be given."""
        try:
            number = self._connection.ask_aside(question)
        except ProtocolError as error:
            raise TooLargeError from error
        if not number:
            self._check_running()
            raise KnownError("No model is loaded.")
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        self._wants_to_write.set()
        try:
            return await asyncio.wait_for(answer, _QUESTION_SECONDS)
        except TimeoutError:
            raise KnownError("The engine can't answer this question.") from None
        finally:
            self._questions.pop(number, None)

    def _check_running(self) -> None:
        if self._exit is not None or self._process is None:
            raise EngineEndedError(self._exit or EngineExit(ExitCause.EXITED, "closed", self._connection.state))

    # ------------------------------------------------------------ bytes

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(65536):
            try:
                for event in self._connection.receive(data):
                    self._take(event)
            except ProtocolError:
                process.kill()
            self._wants_to_write.set()  # a greeting lets the first command go

    def _take(self, event: Event | Stalled) -> None:
        match event:
            case Stalled():
                self._end_stalled()
            case PromptCounted() | TextChecked() | Tokenized():
                question = self._questions.get(event.request)
                if question and not question.done():
                    question.set_result(event)
            case _:
                self._events.put_nowait(event)

    async def _write(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # `_watch` sees its end
            while True:
                await self._wants_to_write.wait()
                self._wants_to_write.clear()
                while self._connection.is_sending():
                    process.stdin.write(self._connection.bytes_to_send())
                    await process.stdin.drain()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(65536):
            self._connection.log.add(data)
        self._connection.log.end()

    # ------------------------------------------------------------ its end

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Notice a stall, and the end."""
        ending = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait([ending], timeout=_TIMINGS.tick))[0]:
                if self._connection.needs_ticks():
                    if self._connection.tick():
                        self._end_stalled()
                    self._wants_to_write.set()
        finally:
            ending.cancel()
        if self._process is None:  # `close`
            return
        await asyncio.gather(*self._tasks[:2], return_exceptions=True)  # its last words
        code = process.returncode or 0
        crashed = code < 0 or (sys.platform == "win32" and code > 0x7FFFFFFF)
        cause = exit_cause(abs(code), crashed=crashed, memory_kills_before=self._memory_kills)
        self._fail(self._connection.died(*cause))

    def _end_stalled(self) -> None:
        if self._process and self._process.returncode is None:
            _log.error("the engine doesn't respond and is ended")
            self._process.kill()

    def _fail(self, ended: EngineExit) -> None:
        """Tell whoever waits."""
        self._exit = ended
        self._events.put_nowait(ended)
        for question in self._questions.values():
            if not question.done():
                question.set_exception(EngineEndedError(ended))
        self.ended.set()
