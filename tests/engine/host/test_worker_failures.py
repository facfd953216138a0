"""The engine's process when something is wrong with its pipes or with itself."""

from __future__ import annotations

import struct

import pytest

from app.protocol.commands import Load
from app.protocol.events import Hello
from app.protocol.frames import ProtocolError, decode_command, decode_event
from tests.support.engine_process import EngineProcess
from tests.support.pairs import Pair

NESTED = b'{"type":"ping","x":' + b"[" * 100_000
NO_UTF8 = b'{"type":"load","request":1,"target":"\xff"}'


@pytest.mark.parametrize("body", [b"hello", NESTED, b'{"type":"hello","x":' + b"[" * 100_000, NO_UTF8, b'{"\xff":1}'])
def test_whatever_the_other_side_sends_is_a_message_or_a_protocol_error(body: bytes) -> None:
    for decode in (decode_command, decode_event):
        with pytest.raises(ProtocolError):
            decode(body)


def test_an_unreadable_command_ends_the_process_and_stands_in_the_log() -> None:
    with EngineProcess() as process:
        process.until(Hello)
        assert process.process.stdin is not None and process.process.stderr is not None
        process.process.stdin.write(struct.pack("<I", len(NESTED)) + NESTED)
        process.process.stdin.flush()
        assert process.wait() == 1
        assert b"unreadable command: maximum recursion depth" in process.process.stderr.read()


def test_a_window_that_reads_no_more_ends_the_process_without_a_traceback(random_pair: Pair) -> None:
    """The first event it cannot send is one about a load, within a call of llama.cpp."""
    with EngineProcess() as process:
        process.until(Hello)
        assert process.process.stdout is not None and process.process.stderr is not None
        process.process.stdout.close()
        process.send(Load(request=1, target=str(random_pair[0])))
        assert process.wait() == 0
        log = process.process.stderr.read()
        assert b"the event pipe broke" in log and b"Traceback" not in log
