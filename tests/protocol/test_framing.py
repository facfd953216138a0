from __future__ import annotations

import struct

import pytest

from app.protocol.commands import Generate, Message, Ping
from app.protocol.events import Piece, Round, RoundsReceived
from app.protocol.frames import MAX_BYTES, FrameReader, ProtocolError, decode_command, decode_event, encode_frame
from app.protocol.options import Sampling

EVENT = RoundsReceived(
    request=3,
    rounds=[
        Round(index=1, verify_passes=1, tokens=1, pieces=[Piece(text="é\x00", id=5, drafter="model", rejected="x")])
    ],
)


def body(frame: bytes) -> bytes:
    return frame[4:]


def test_messages_survive_the_way() -> None:
    command = Generate(request=1, messages=[Message(role="user", content="hi")], sampling=Sampling(top_k=3), seed=7)
    assert decode_command(body(encode_frame(command))) == command
    assert decode_event(body(encode_frame(EVENT))) == EVENT


def test_frames_are_found_however_they_are_cut() -> None:
    stream = encode_frame(Ping()) + encode_frame(EVENT) + encode_frame(Ping())
    reader = FrameReader()
    bodies = [found for i in range(len(stream)) for found in reader.feed(stream[i : i + 1])]
    assert bodies == FrameReader().feed(stream) == [body(encode_frame(m)) for m in (Ping(), EVENT, Ping())]


def test_an_oversized_frame_is_refused_before_it_arrives() -> None:
    with pytest.raises(ProtocolError, match="larger than"):
        FrameReader().feed(struct.pack("<I", MAX_BYTES + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"{}",
        b'{"type": "no such message"}',
        b'{"type": "rounds_received", "request": "three", "rounds": []}',
        b'{"type": "rounds_received", "request": 3, "rounds": [{"index": 1}]}',
        b'{"type": "load_progressed", "request": 1, "stage": "target", "fraction": 7}',
        b'{"type": "pong", "busy": true, "seconds_since_progress": NaN}',
    ],
)
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_event(data)


@pytest.mark.parametrize("field", [b'"draft_length": 17', b'"seed": -1', b'"max_tokens": 0', b'"accept": "maybe"'])
def test_commands_out_of_range_are_refused(field: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_command(b'{"type": "generate", "request": 1, "messages": [], ' + field + b"}")


def test_half_a_surrogate_pair_in_a_message_does_not_stop_it() -> None:
    message = Message(role="user", content="bad \ud83d paste")
    command = decode_command(encode_frame(Generate(request=1, messages=[message], stop=["\udc00"]))[4:])
    assert isinstance(command, Generate)
    assert (command.messages[0].content, command.stop) == ("bad ? paste", ["?"])
