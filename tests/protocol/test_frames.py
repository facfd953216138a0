"""Frames as blocking readers see them; `tests/protocol/test_framing.py` has those that arrive in pieces."""

from __future__ import annotations

import io

import pytest

from app.protocol import frames


def test_bodies_come_back_in_order_until_the_end() -> None:
    stream = io.BytesIO()
    for body in (b"", b"one", b"\x00" * 70_000):
        frames.write(stream, body)
    stream.seek(0)
    assert [frames.read(stream) for _ in range(4)] == [b"", b"one", b"\x00" * 70_000, None]


@pytest.mark.parametrize("length", range(7))
def test_a_frame_that_is_cut_off_is_the_end(length: int) -> None:
    assert frames.read(io.BytesIO(frames.framed(b"body")[:length])) is None


def test_too_large_a_body_is_neither_written_nor_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frames.framed(b"12345")
    monkeypatch.setattr(frames, "MAX_BYTES", 4)
    stream = io.BytesIO()
    with pytest.raises(frames.ProtocolError, match="larger than 4"):
        frames.write(stream, b"12345")
    assert stream.getvalue() == b""
    with pytest.raises(frames.ProtocolError, match="larger than 4"):
        frames.read(io.BytesIO(frame))
