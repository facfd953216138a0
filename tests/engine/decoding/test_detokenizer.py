from __future__ import annotations

import pytest

from app.engine.decoding.text import TextStream, TokenTexts
from app.protocol.events import Piece


class Stream:
    """Feeds byte strings as tokens and collects what comes out."""

    def __init__(self, tokens: list[bytes], stops: list[str] | None = None) -> None:
        self._stream = TextStream(TokenTexts(lambda token: tokens[token]), stops or [])
        self.steps: list[str] = []
        self.pieces: list[Piece] = []
        for token in range(len(tokens)):
            released = self._stream.add(Piece(text="", id=token, round=token))
            self.steps.append("".join(piece.text for piece in released))
            self.pieces += released
            if self._stream.met_stop:
                break
        else:
            self.pieces += self._stream.end()
        self.stop, self.safe = self._stream.met_stop, self._stream.safe_tokens

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def test_characters_split_over_tokens_come_out_whole() -> None:
    data = "a€🙂b".encode()
    stream = Stream([data[i : i + 1] for i in range(len(data))])
    assert stream.steps == ["a", "", "", "€", "", "", "", "🙂", "b"]
    assert len(stream.pieces) == len(data)


def test_invalid_bytes_become_the_replacement_character() -> None:
    assert Stream([b"a\xff", b"b"]).text == "a\ufffdb"


@pytest.mark.parametrize("tokens", [[b"a", "€".encode()[:2]], [b"a" + "€".encode()[:2]]])
def test_a_character_that_is_never_completed_is_not_shown(tokens: list[bytes]) -> None:
    stream = Stream(tokens)
    assert (stream.text, len(stream.pieces)) == ("a", len(tokens))


def test_a_stop_string_over_several_tokens_is_never_shown() -> None:
    stream = Stream([b"Hello", b" wor", b"ld", b"END", b"more"], ["world"])
    assert (stream.text, stream.stop, stream.safe) == ("Hello ", "world", 1)
    assert stream.steps == ["Hello", "", " "]


def test_text_that_only_looks_like_a_stop_string_is_shown_late_but_whole() -> None:
    stream = Stream([b"wor", b"wor", b"th"], ["world"])
    assert stream.steps == ["", "wor", "worth"]
    assert (stream.text, stream.stop, stream.safe) == ("worworth", None, 3)


def test_the_first_of_several_stop_strings_counts() -> None:
    stream = Stream([b"one two three"], ["three", "two"])
    assert (stream.text, stream.stop) == ("one ", "two")


def test_a_stop_string_split_inside_a_character() -> None:
    data = "x→y".encode()
    stream = Stream([data[:2], data[2:]], ["→"])
    assert (stream.text, stream.stop) == ("x", "→")


def test_what_is_held_back_at_the_end_is_shown() -> None:
    assert Stream([b"almost wor"], ["world"]).text == "almost wor"


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_stop_strings_every_token_is_shown_at_once(stops: list[str]) -> None:
    assert Stream([b"a", b"b"], stops).steps == ["a", "b"]
