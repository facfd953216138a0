"""The protocol with an engine, byte by byte: no process, no clock."""

from __future__ import annotations

import msgspec
import pytest

from app.client.connection import Connection, EngineExit, EngineState, ExitCause, Stalled, Timings
from app.protocol import frames
from app.protocol.commands import (
    Cancel,
    ChatPart,
    CheckText,
    Command,
    CountTokens,
    Forget,
    Generate,
    Load,
    Message,
    Ping,
    StopThinking,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    Event,
    Figures,
    Forgotten,
    GenerationFinished,
    Hello,
    ModelInfo,
    PairLoaded,
    Pong,
    RoundsReceived,
    StartFailed,
    TextChecked,
    TokensCounted,
)
from app.protocol.frames import FrameReader, ProtocolError, decode_command, encode_frame
from app.protocol.remote import Connect, FindServers, Probe, ServerProbed, ServersFound
from app.protocol.tools import ToolCall

HELLO = Hello(protocol=PROTOCOL_VERSION, engine="test")
PAIR = Load(request=0, target="target.gguf")
ANSWER = Generate(request=0, messages=[])
TIMINGS = Timings(tick=1.0, silence=3.0, no_progress=20.0, start=4.0, cancel=2.0)


def sent(connection: Connection) -> list[Command]:
    return [decode_command(body) for body in FrameReader().feed(connection.bytes_to_send())]


def told(connection: Connection, *events: Event) -> list[Event | Stalled]:
    return list(connection.receive(b"".join(map(encode_frame, events))))


def ready() -> Connection:
    """With a pair, whose request was number 1."""
    connection = Connection(TIMINGS)
    connection.start()
    connection.load(PAIR)
    told(connection, HELLO, PairLoaded(request=1, target=ModelInfo(path="", name="")))
    sent(connection)
    return connection


def finished(request: int) -> GenerationFinished:
    return GenerationFinished(request=request, finish_reason="end", figures=Figures())


@pytest.fixture
def starting() -> Connection:
    connection = Connection(TIMINGS)
    connection.start()
    return connection


def test_nothing_is_sent_before_the_greeting(starting: Connection) -> None:
    assert starting.load(PAIR) == 1
    assert starting.load(PAIR) == 2  # in place of the first
    starting.forget()
    assert (sent(starting), starting.state) == ([], EngineState.STARTING)
    assert told(starting, HELLO) == [HELLO]
    assert starting.state is EngineState.LOADING
    assert sent(starting) == [Forget(), msgspec.structs.replace(PAIR, request=2)]


def test_an_event_of_another_request_is_left_out() -> None:
    connection = ready()
    assert connection.ask(ANSWER) == 2
    rounds = RoundsReceived(request=2, rounds=[])
    assert told(connection, RoundsReceived(request=9, rounds=[]), rounds) == [rounds]
    assert (told(connection, finished(1)), connection.state) == ([], EngineState.ANSWERING)
    assert (told(connection, finished(2)), connection.state) == ([finished(2)], EngineState.READY)
    assert told(connection, finished(2)) == []


def test_a_load_gives_up_what_runs() -> None:
    connection = ready()
    connection.ask(ANSWER)
    sent(connection)
    connection.load(PAIR)
    assert sent(connection) == [Cancel(), msgspec.structs.replace(PAIR, request=3)]
    assert told(connection, finished(2)) == [] and connection.state is EngineState.LOADING


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    "events",
    [
        [Pong(busy=False, seconds_since_progress=0)],
        [msgspec.structs.replace(HELLO, protocol=99)],
        [HELLO, HELLO],
        [HELLO, Forgotten()],
    ],
)
def test_a_violation_is_what_it_ended_of(starting: Connection, events: list[Event]) -> None:
    with pytest.raises(ProtocolError):
        told(starting, *events)
    assert told(starting, HELLO) == []  # nothing it says counts any more
    ended = starting.died(ExitCause.KILLED, "SIGKILL")
    assert (ended.cause, starting.state) == (ExitCause.PROTOCOL, EngineState.DIED)


@pytest.mark.allow_logs
def test_a_refusal_is_told_by_its_end(starting: Connection) -> None:
    assert told(starting, StartFailed(message="Not here.")) == []
    ended = starting.died(ExitCause.EXITED, "exit code 1")
    assert ended.sentence() == "The engine didn't start. Not here."


@pytest.mark.allow_logs
def test_pings_without_an_answer_are_counted() -> None:
    connection = ready()
    assert [connection.tick() for _ in range(50)] == [None] * 50, "nobody waits for it"
    connection.ask(ANSWER)
    pong = Pong(busy=True, seconds_since_progress=20.0)
    for _ in range(9):
        assert connection.tick() is None
        assert sent(connection)[-1] == Ping()
        assert told(connection, pong) == []
    assert [connection.tick() for _ in range(5)] == [None, None, None, Stalled(3.0), None]
    told(connection, finished(2))
    connection.ask(ANSWER)
    assert connection.tick() is None  # another request
    assert Stalled(3.0) in [connection.tick() for _ in range(3)]


@pytest.mark.allow_logs
def test_a_computation_that_does_not_move_is_told() -> None:
    connection = ready()
    stuck = Pong(busy=True, seconds_since_progress=21.0)
    assert told(connection, stuck) == []  # of what was before
    connection.ask(ANSWER)
    assert told(connection, Pong(busy=False, seconds_since_progress=50.0)) == []
    assert told(connection, stuck, stuck) == [Stalled(21.0)]


@pytest.mark.allow_logs
def test_a_cancel_that_nothing_follows_is_told() -> None:
    connection = ready()
    connection.ask(ANSWER)
    connection.cancel()
    connection.cancel()
    assert sent(connection).count(Cancel()) == 1
    assert [connection.tick() for _ in range(2)] == [None, Stalled(2.0)]
    told(connection, finished(2))
    connection.ask(ANSWER)
    assert [connection.tick() for _ in range(2)] == [None, None]
    connection.cancel()
    assert sent(connection).count(Cancel()) == 1


def test_forgetting_is_told_when_all_of_it_is_done() -> None:
    connection = ready()
    connection.forget()
    connection.forget()
    assert told(connection, Forgotten()) == [] and told(connection, Forgotten()) == [Forgotten()]
    assert not connection.open_forgets


def test_every_cause_has_a_sentence() -> None:
    for cause in ExitCause:
        sentence = EngineExit(cause, "The detail.", EngineState.READY).sentence()
        assert sentence.endswith(".") and len(sentence) > 20


CHAT = [Message(role="user", content="Hi")]


def counted(request: int) -> TokensCounted:
    return TokensCounted(request=request, system=0, messages=4, text=0, context_length=100)


def tokens_of(chat: list[Message], text: str = "") -> CountTokens:
    return CountTokens(request=0, messages=chat, text=text, overflow="stop")


def test_questions_make_nothing_busy_and_only_the_newest_count_is_told() -> None:
    connection = ready()
    answer = connection.ask(ANSWER)
    numbers = [
        connection.count_tokens(tokens_of(CHAT, "a")),
        connection.ask_aside(CheckText(request=0, text="text")),
        connection.count_tokens(
            CountTokens(request=0, messages=[*CHAT, *CHAT], text="ab", overflow="keep_ends", thinking="high")
        ),
    ]
    assert len(set(numbers)) == 3 and 0 not in numbers
    assert sent(connection)[1:] == [
        CountTokens(request=numbers[0], messages=CHAT, text="a", overflow="stop"),
        CheckText(request=numbers[1], text="text"),
        CountTokens(request=numbers[2], messages=CHAT, kept=1, text="ab", overflow="keep_ends", thinking="high"),
    ]
    assert (connection.state, connection.request) == (EngineState.ANSWERING, answer)
    checked = TextChecked(request=numbers[1], tokens=[1, 2])
    events: list[Event] = [counted(numbers[0]), checked, checked, counted(numbers[2]), counted(numbers[2])]
    assert told(connection, *events) == [checked, counted(numbers[2])]
    assert connection.state is EngineState.ANSWERING


def test_servers_are_looked_for_without_a_pair_and_beside_a_load(starting: Connection) -> None:
    probe = Probe(request=0, address="localhost")
    first, second = starting.search(probe), starting.search(FindServers(request=0))
    starting.load(Connect(request=0, address="localhost"))
    connecting = starting.load(Connect(request=0, address="::1"))  # in place of the first
    told(starting, HELLO)
    assert starting.state is EngineState.LOADING
    expected = [
        msgspec.structs.replace(probe, request=first),
        FindServers(request=second),
        Connect(request=connecting, address="::1"),
    ]
    assert sent(starting) == expected
    probed, found = ServerProbed(request=first, cause="key", message="No."), ServersFound(request=second)
    assert told(starting, found, probed, probed, ServersFound(request=99)) == [found, probed]
    assert starting.state is EngineState.LOADING


def test_the_tokens_of_calls_count_when_a_chat_is_sent_in_parts() -> None:
    call = ToolCall("abcdefghi", "tool", "{}")
    chat = [Message(role="assistant", content="", tool_calls=(call,), tokens=(123_456,) * 10_000) for _ in range(4)]
    connection, data = ready(), b""
    connection.count_tokens(tokens_of(chat, "a"))
    while connection.is_sending():
        data += connection.bytes_to_send()
    assert [type(decode_command(body)) for body in FrameReader().feed(data)] == [*[ChatPart] * 3, CountTokens]


def test_a_long_chat_is_sent_in_parts_and_only_once() -> None:
    """Whoever drives the connection is not kept long by any of them."""
    connection = ready()
    chat = [Message(role="user", content=str(number) * 30_000) for number in range(8)]
    number = connection.count_tokens(tokens_of(chat, "a"))
    assert connection.cancel() is None  # nothing to stop
    connection.ask_aside(CheckText(request=0, text="text"))
    pieces, data = list[bytes](), b""
    while connection.is_sending():
        pieces.append(connection.bytes_to_send())
        data += pieces[-1]
    assert connection.bytes_to_send() == b""
    assert len(pieces) == 4 and max(map(len, pieces)) < 100_000
    assert [decode_command(body) for body in FrameReader().feed(data)] == [
        ChatPart(messages=chat[:3]),
        ChatPart(messages=chat[3:6], kept=3),
        CountTokens(request=number, messages=chat[6:], kept=6, text="a", overflow="stop"),
        CheckText(request=number + 1, text="text"),
    ]
    question = Message(role="user", content="And now?")
    request = connection.ask(Generate(request=0, messages=[*chat, question]))
    assert sent(connection) == [Generate(request=request, messages=[question], kept=8)]


def test_an_answer_to_a_message_that_is_too_large_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = ready()
    monkeypatch.setattr(frames, "MAX_BYTES", 1000)
    with pytest.raises(ProtocolError):
        connection.ask(Generate(request=0, messages=[Message(role="user", content="x" * 200)]))
    assert connection.state is EngineState.READY and not connection.is_sending()


@pytest.mark.allow_logs
def test_only_what_a_process_does_not_have_of_a_chat_is_sent() -> None:
    """The whole again after a `Forget` and to another process."""
    connection, other = ready(), [Message(role="user", content="Something else")]

    def rest(chat: list[Message]) -> tuple[int, list[Message]]:
        connection.count_tokens(tokens_of(chat))
        command = sent(connection)[-1]
        assert isinstance(command, CountTokens)
        return command.kept, command.messages

    assert rest([*CHAT, *other]) == (0, [*CHAT, *other])
    assert rest([*CHAT, *other]) == (2, [])
    assert rest([*CHAT, *CHAT, *other]) == (1, [*CHAT, *other])
    assert rest(CHAT) == (1, [])
    connection.forget()
    assert rest(CHAT) == (0, CHAT)
    connection.died(ExitCause.KILLED, "")
    connection.start()
    told(connection, HELLO)
    loaded = connection.load(PAIR)
    told(connection, PairLoaded(request=loaded, target=ModelInfo(path="", name="")))
    assert rest(CHAT) == (0, CHAT)


def test_thinking_is_stopped_only_while_an_answer_is_written() -> None:
    connection = ready()
    connection.stop_thinking()
    assert sent(connection) == []
    connection.ask(ANSWER)
    sent(connection)
    connection.stop_thinking()
    assert sent(connection) == [StopThinking()]
    assert connection.state is EngineState.ANSWERING
