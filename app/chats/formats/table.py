"""The formats: how each is recognized and read, and what can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.chats.formats import chatgpt, claude, jan, llama_cpp, lm_studio, markdown, open_webui, slipstream, turns
from app.chats.formats.records import ChatRecord, LeftOut
from app.chats.formats.sources import Source


@dataclass(frozen=True)
class ReadFormat:
    """A format that can be read. A file has it if its first record is recognized."""

    name: str
    recognizes: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any], LeftOut], ChatRecord] | None = None
    """Reads a record that is a chat. Raises `UnusableError`."""
    read_all: Callable[[Iterator[Any], Source, LeftOut], Iterator[ChatRecord]] | None = None
    """Reads all records of a file, where a record is only a part of a chat."""


READ: tuple[ReadFormat, ...] = (
    ReadFormat(slipstream.NAME, slipstream.recognizes, slipstream.read),
    ReadFormat(
        llama_cpp.NAME,
        llama_cpp.recognizes,
        read_all=lambda records, _source, left_out: llama_cpp.read_all(records, left_out),
    ),
    ReadFormat(llama_cpp.NAME, llama_cpp.recognizes_older, llama_cpp.read_older),
    ReadFormat(chatgpt.NAME, chatgpt.recognizes, chatgpt.read),
    ReadFormat(claude.NAME, claude.recognizes, claude.read),
    ReadFormat(open_webui.NAME, open_webui.recognizes, open_webui.read),
    ReadFormat(lm_studio.NAME, lm_studio.recognizes, lm_studio.read),
    ReadFormat(
        jan.NAME,
        jan.recognizes,
        read_all=lambda records, source, left_out: jan.read_all(records, source.beside, left_out),
    ),
    ReadFormat(turns.SHAREGPT, turns.recognizes_sharegpt, turns.read_sharegpt),
    ReadFormat(turns.OPENAI, turns.recognizes_openai, turns.read_openai),
    ReadFormat(
        turns.OPENAI,
        turns.is_message,
        read_all=lambda records, _source, left_out: turns.read_all(records, left_out),
    ),
)
"""In the order in which they are tried."""

TITLES = {
    slipstream.NAME: "Slipstream",
    llama_cpp.NAME: "llama.cpp",
    chatgpt.NAME: "ChatGPT",
    claude.NAME: "Claude",
    open_webui.NAME: "Open WebUI",
    lm_studio.NAME: "LM Studio",
    jan.NAME: "Jan",
    turns.SHAREGPT: "ShareGPT",
    turns.OPENAI: "OpenAI messages",
    markdown.NAME: "Slipstream",
}
"""What the formats of `READ` are called on screen."""
