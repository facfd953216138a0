"""An engine process: for asyncio, and blocking for commands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from app import system, words
from app.client.connection import (
    Connection,
    EngineEndedError,
    EngineExit,
    ExitCause,
    Question,
    Stalled,
    Timings,
    exit_cause,
    out_of_memory_kills,
)
from app.protocol.commands import Generate, Load, Quit, ScoreTokens
from app.protocol.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Hello,
    LoadFailed,
    LoadProgressed,
    PairLoaded,
    PromptCounted,
    PromptProgressed,
    Round,
    RoundsReceived,
    TextChecked,
    Tokenized,
    TokensScored,
)
from app.protocol.frames import ProtocolError, encode_frame
from app.protocol.remote import Connect
from app.protocol.serving import AnsweredQuestion, AsideQuestion
from app.system import Canceled, KnownError

_log = logging.getLogger("slipstream.engine")
_TIMINGS = Timings(silence=60.0, no_progress=300.0, cancel=60.0, quit=10.0)
"""Generous, because a stalled engine is killed."""
_QUESTION_SECONDS = 30.0

GenerationEvent = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished
_T = TypeVar("_T")


class GenerationFailedError(KnownError):
    """A request failed; ``prompt_tokens`` is the length of a prompt that is too long, otherwise 0."""

    def __init__(self, event: GenerationFailed) -> None:
        super().__init__(event.message)
        self.prompt_tokens = event.prompt_tokens


class TooLargeError(KnownError):
    """A message of the chat doesn't fit into a frame."""

    def __init__(self) -> None:
        super().__init__("A message of this chat is too long.")


class AsyncEngineProcess:
    """An engine process, from `start` to `close`: one request at a time, and questions alongside.

    When it ends, `ended` is set, and every waiting call raises `EngineEndedError`.
    """

    def __init__(self, *, is_watched: bool = True) -> None:
        """``is_watched``: kill the process when it stalls."""
        self.ended = asyncio.Event()
        self._is_watched = is_watched
        self._connection = Connection(_TIMINGS)
        self._process: asyncio.subprocess.Process | None = None
        self._is_closing = False
        self._events: asyncio.Queue[Event | EngineExit] = asyncio.Queue()
        """Of the current request."""
        self._ending: asyncio.Future[None] | None = None
        """Winds down the last request, even if its caller is canceled twice."""
        self._questions: dict[int, asyncio.Future[AnsweredQuestion]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._memory_kills = out_of_memory_kills()
        self._exit: EngineExit | None = None
        self._wants_to_write = asyncio.Event()

    @property
    def process_id(self) -> int:
        """0 before `start`."""
        return self._process.pid if self._process else 0

    async def start(self, command: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """``command`` replaces the engine's own; ``environment`` adds variables. Raises `EngineEndedError`."""
        self._connection.start()
        words = command or system.engine_command("--no-chat-files")
        try:
            self._process = await asyncio.create_subprocess_exec(*words, **system.process_options(environment))
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
        process = self._process
        if process is None or self._is_closing:
            return
        self._is_closing = True
        try:
            if self._connection.hello is not None and process.stdin is not None and process.returncode is None:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    process.stdin.write(encode_frame(Quit()))
                    process.stdin.close()
                    await asyncio.wait_for(process.wait(), _TIMINGS.quit)
        finally:
            self.kill()
            self._connection.stop()
            await process.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._fail(self._exit or EngineExit(ExitCause.EXITED, "closed", self._connection.state))

    def kill(self) -> None:
        """End the process by force, if it is running."""
        if self._process and self._process.returncode is None:
            self._process.kill()

    # ------------------------------------------------------------ requests

    async def hello(self) -> Hello:
        """The engine's greeting. Don't call it while a request is open."""
        while (hello := self._connection.hello) is None:
            await self._next_event()
        return hello

    async def load(
        self, command: Load | Connect, on_progress: Callable[[LoadProgressed], None] = lambda _: None
    ) -> PairLoaded:
        """Load a pair, or use a server's model. Raises `KnownError` if that fails, and `Canceled`."""
        self._ask(command)
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
        """Answer a chat; the last event is `GenerationFinished`. Closing the generator early cancels the answer and
        waits until it has ended. Raises `GenerationFailedError`.
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

    async def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """Score tokens with the target. Raises `GenerationFailedError` if that isn't possible."""
        self._ask(command)
        async for event in self._answers():
            match event:
                case GenerationFailed():
                    raise GenerationFailedError(event)
                case TokensScored():
                    return event
        raise AssertionError("a request always ends")

    def cancel(self) -> None:
        """Stop the current request; its last event still arrives."""
        if (failed := self._connection.cancel()) is not None:
            self._events.put_nowait(failed)
        self._wants_to_write.set()

    async def ask_aside(self, question: AsideQuestion) -> AnsweredQuestion:
        """Answer a question about the loaded pair, even during a request. Raises `KnownError`."""
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

    def _ask(self, command: Load | Connect | Question) -> None:
        self._check_running()
        while not self._events.empty():
            self._events.get_nowait()
        try:
            if isinstance(command, Load | Connect):
                self._connection.load(command)
            else:
                self._connection.ask(command)
        except ProtocolError as error:
            raise TooLargeError from error
        self._wants_to_write.set()

    async def _answers(self) -> AsyncIterator[Event]:
        """The events of the current request."""
        while self._connection.request or not self._events.empty():
            yield await self._next_event()

    async def _next_event(self) -> Event:
        event = await self._events.get()
        if isinstance(event, EngineExit):
            self._events.put_nowait(event)  # for the next caller
            raise EngineEndedError(event)
        return event

    async def _end_request(self) -> None:
        """Cancel the request if it is still running, and wait for its end."""
        if self._connection.state.is_busy:
            self.cancel()
            with contextlib.suppress(EngineEndedError):
                async for _ in self._answers():
                    pass

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
            self._wants_to_write.set()  # the greeting allows the first command

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
        with contextlib.suppress(OSError):  # `_watch` notices the end
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
        """Watch for stalls and for the end of the process."""
        ending = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait([ending], timeout=_TIMINGS.tick if self._is_watched else None))[0]:
                if self._connection.needs_ticks():
                    if self._connection.tick():
                        self._end_stalled()
                    self._wants_to_write.set()
        finally:
            ending.cancel()
        if self._is_closing:
            return
        await asyncio.gather(*self._tasks[:2], return_exceptions=True)  # read the rest of its output
        code = process.returncode or 0
        crashed = code < 0 or (sys.platform == "win32" and code > 0x7FFFFFFF)
        cause = exit_cause(abs(code), crashed=crashed, memory_kills_before=self._memory_kills)
        self._fail(self._connection.died(*cause))

    def _end_stalled(self) -> None:
        _log.error("the engine doesn't respond and is killed")
        self.kill()

    def _fail(self, ended: EngineExit) -> None:
        """Make every waiting call raise."""
        self._exit = ended
        self._events.put_nowait(ended)
        for question in self._questions.values():
            if not question.done():
                question.set_exception(EngineEndedError(ended))
        self.ended.set()


class EngineProcess:
    """`AsyncEngineProcess` for callers without an event loop: each method waits for the engine.

    The constructor starts the process; leaving the ``with`` statement ends it. One request at a time, in one thread;
    only `cancel` may be called from another thread or a signal handler.
    """

    def __init__(
        self, *options: str, command: Sequence[str] = (), limit_seconds: float | None = None, **environment: str
    ) -> None:
        """``options`` are the engine's; ``command`` replaces the whole command; ``environment`` adds variables.

        With ``--unwatched``, rounds arrive only twice a second, which disturbs the computation less. The process is
        killed after ``limit_seconds``, if given.
        """
        self._runner = asyncio.Runner()
        self._is_canceled = self._is_overdue = self._is_closed = False
        self._limit: asyncio.TimerHandle | None = None
        self._limit_seconds = 0.0
        self._engine = AsyncEngineProcess(is_watched=False)
        try:
            self._run(self._engine.start(command or system.engine_command("--no-chat-files", *options), environment))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        if limit_seconds is not None:
            self.limit(limit_seconds)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, by force if necessary."""
        try:
            self._runner.run(self._engine.close())
        finally:
            self._is_closed = True
            self._runner.close()

    @property
    def process_id(self) -> int:
        return self._engine.process_id

    def limit(self, seconds: float) -> None:
        """Kill the process ``seconds`` from now, instead of at an earlier limit."""
        if self._limit:
            self._limit.cancel()
        self._limit_seconds = seconds
        self._limit = self._runner.get_loop().call_later(seconds, self._end_overdue)

    def hello(self) -> Hello:
        """The engine's greeting: its version, and the GPUs it can offload to."""
        return self._run(self._engine.hello())

    def load(
        self, command: Load | Connect, on_progress: Callable[[LoadProgressed], None] = lambda _: None
    ) -> PairLoaded:
        """Load a pair, or use a server's model. Raises `KnownError` if that fails, and `Canceled`."""
        return self._run(self._unless_canceled(self._engine.load(command, on_progress)))

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]:
        """Answer a chat; the last event is `GenerationFinished`. Raises `KnownError` if that fails."""
        events = self._engine.generate(command)

        async def next_event() -> GenerationEvent | None:
            return await anext(events, None)

        event = self._run(self._unless_canceled(next_event()))
        try:
            while event is not None:
                if isinstance(event, RoundsReceived):
                    yield from event.rounds
                else:
                    yield event
                event = self._run(next_event())
        finally:
            if not self._is_closed:
                self._run(events.aclose())

    def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """Score tokens with the target. Raises `KnownError` if that isn't possible, and `Canceled`."""
        try:
            return self._run(self._unless_canceled(self._engine.score_tokens(command)))
        except GenerationFailedError:
            if self._is_canceled:
                raise Canceled from None
            raise

    def cancel(self) -> None:
        """Stop the current request; later ones raise `Canceled`."""
        self._is_canceled = True
        self._runner.get_loop().call_soon_threadsafe(self._engine.cancel)

    async def _unless_canceled(self, request: Coroutine[object, object, _T]) -> _T:
        if self._is_canceled:
            request.close()
            raise Canceled
        return await request

    def _run(self, work: Coroutine[object, object, _T]) -> _T:
        try:
            return self._runner.run(work)
        except EngineEndedError as error:
            if not self._is_overdue:
                raise
            sentence = f"The engine did not finish within {words.number(self._limit_seconds)} s and was stopped."
            raise KnownError(sentence) from error

    def _end_overdue(self) -> None:
        self._is_overdue = True
        self._engine.kill()
