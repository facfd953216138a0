"""The export formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from app.chats.formats import html_page, llama_cpp, markdown, slipstream, turns
from app.chats.formats.html_page import Render
from app.chats.formats.records import ChatRecord


@dataclass(frozen=True)
class WriteFormat:
    name: str
    """The name on the command line."""
    title: str
    description: str
    suffix: str
    write: Callable[[ChatRecord, Render], str]
    begin: str = ""
    between: str | None = None
    """Separates two chats in one file; ``None`` if each chat needs its own file."""
    end: str = ""

    @property
    def joins(self) -> bool:
        """Whether one file can hold several chats."""
        return self.between is not None

    def text_of(self, chats: Iterable[ChatRecord], render: Render) -> Iterator[str]:
        """The pieces of a file with these chats; only one chat if the format doesn't join."""
        yield self.begin
        for place, chat in enumerate(chats):
            yield (self.between or "" if place else "") + self.write(chat, render)
        yield self.end


WRITE: dict[str, WriteFormat] = {
    one.name: one
    for one in (
        WriteFormat(
            "markdown",
            "Markdown",
            "Text with headings that people and most editors can read. Slipstream can import it again.",
            ".md",
            lambda chat, _: markdown.write(chat),
        ),
        WriteFormat(
            "html",
            "Web page",
            "One page for a browser. Nothing in it is loaded from the internet.",
            ".html",
            html_page.write,
        ),
        WriteFormat(
            "json",
            "Slipstream JSON",
            "Everything: all versions, thinking, tool calls, figures and settings. Slipstream can import it again.",
            ".json",
            lambda chat, _: slipstream.write(chat),
            "[\n",
            ",\n",
            "\n]\n",
        ),
        WriteFormat(
            "llama.cpp",
            "llama.cpp",
            "All versions, for llama.cpp's web page.",
            ".jsonl",
            lambda chat, _: llama_cpp.write(chat),
            between="\n",
            end="\n",
        ),
        WriteFormat(
            "openai",
            "OpenAI messages",
            "One chat on each line, for programs and training.",
            ".jsonl",
            lambda chat, _: turns.write_openai(chat),
            between="\n",
            end="\n",
        ),
    )
}
