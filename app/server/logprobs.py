"""How likely the target found the tokens of an answer, in the forms of both of OpenAI's APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.protocol.events import Piece, TokenLogprob

Json = dict[str, Any]


def chat_logprobs(pieces: Sequence[Piece]) -> Json:
    """``logprobs`` of a choice of ``/v1/chat/completions``."""
    content = []
    for piece in pieces:
        own, *others = piece.logprobs
        content.append({**_entry(own), "top_logprobs": list(map(_entry, others))})
    return {"content": content, "refusal": None}


def completion_logprobs(pieces: Sequence[Piece], offset: int) -> Json:
    """``logprobs`` of a choice of ``/v1/completions``; the text of ``pieces`` begins at ``offset`` in the answer."""
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece.text)
    return {
        "tokens": [_named(piece.logprobs[0]) for piece in pieces],
        "token_logprobs": [piece.logprobs[0].logprob for piece in pieces],
        "top_logprobs": [{_named(one): one.logprob for one in piece.logprobs[1:]} for piece in pieces],
        "text_offset": offsets,
    }


def _entry(token: TokenLogprob) -> Json:
    return {"token": token.text.decode("utf-8", "replace"), "logprob": token.logprob, "bytes": list(token.text)}


def _named(token: TokenLogprob) -> str:
    """Tokens that are no text must not look the same."""
    try:
        return token.text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.text)
