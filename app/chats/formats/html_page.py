"""A chat as one HTML page, without scripts and without anything that has to be loaded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TypeAlias

from app.chats.formats.markdown import author_of, call_title, date_of, ending_of, thinking_title, title_of
from app.chats.formats.records import AttachmentRecord, ChatRecord, MessageRecord, StoredCall, Turn
from app.words import shortened

Render: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Turns Markdown into safe HTML."""

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1rem; margin: 2rem 0 0.5rem; }
.quiet { opacity: 0.7; font-size: 0.875rem; }
details { border-left: 3px solid #8888; padding-left: 1rem; opacity: 0.85; }
pre { padding: 0.75rem; border-radius: 8px; background: #8882; overflow-x: auto; }
details > pre { white-space: pre-wrap; }
code { font-family: ui-monospace, monospace; font-size: 0.875em; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8886; padding: 0.25rem 0.5rem; }
img { display: block; max-width: 100%; max-height: 30rem; margin: 0.5rem 0; border-radius: 8px; }
blockquote { border-left: 3px solid #8888; margin-left: 0; padding-left: 1rem; }
.footnote p:first-of-type { display: inline; }
svg { max-width: 100%; }
.formula { display: block; margin: 0.75rem 0; text-align: center; overflow-x: auto; }
@media print { pre { white-space: pre-wrap; } }
"""
# Keeps a browser from loading anything, whatever a text contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


_MOST_PRINTED = 4000
"""Characters of a tool's arguments or result on paper."""
_MEDIA_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8": "image/jpeg", b"GIF8": "image/gif", b"BM": "image/bmp"}


def write(chat: ChatRecord, render: Render) -> str:
    """The shown branch. Thinking and the texts of attached files are folded."""
    title, date = escape(title_of(chat)), escape(date_of(chat))
    body = [f"<h1>{title}</h1>", f'<p class="quiet">{date}</p>' if date else ""]
    for message, thinking, turns in _rendered(chat, render):
        body.append(f"<h2>{escape(author_of(message))}</h2>")
        if thinking:
            summary = escape(thinking_title(message))
            body.append(f"<details><summary>{summary}</summary>\n{thinking}</details>")
        body += map(_folded, message.attachments)
        for text, calls in turns:
            body += [text, *map(_call, calls)]
        body.append(_ending(message))
    return "\n".join(
        (
            '<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            *filter(None, body),
            "</body>\n</html>\n",
        )
    )


def for_paper(chat: ChatRecord, render: Render) -> str:
    """The same for Qt's rich text, which can't fold and has fewer styles; attached files only show their names."""
    body = [f"<h1>{escape(title_of(chat))}</h1>", f"<p><i>{escape(date_of(chat))}</i></p>"]
    for message, thinking, turns in _rendered(chat, render):
        body.append(f"<h3>{escape(author_of(message))}</h3>")
        if thinking:
            body.append(f"<blockquote><i>{escape(thinking_title(message))}</i>{thinking}</blockquote>")
        body += [f"<p><i>{escape(one.name)}</i></p>" for one in message.attachments]
        for text, calls in turns:
            body += [text, *(_call(one, on_paper=True) for one in calls)]
        body.append(_ending(message))
    return "\n".join(filter(None, body))


def _rendered(chat: ChatRecord, render: Render) -> Iterator[tuple[MessageRecord, str, list[Turn]]]:
    """The messages with their thinking, and their text in pieces with tool calls after them, as HTML."""
    found = [(message, message.turns()) for message in chat.branch()]
    html = iter(render([text for one, turns in found for text in (one.thinking, *(said for said, _ in turns))]))
    for message, turns in found:
        yield message, next(html), [(next(html), calls) for _, calls in turns]


def _call(call: StoredCall, *, on_paper: bool = False) -> str:
    """A tool call and its result, as plain text. On paper they are cut where they are long, and their lines wrap."""
    title = escape(f"{call_title(call)}: {call.name}{f' ({call.server})' if call.server else ''}")
    said = [one for one in (call.arguments, call.result) if one]
    if not on_paper:
        return f"<details><summary>{title}</summary>\n{''.join(f'<pre>{escape(one)}</pre>' for one in said)}</details>"
    lines = [escape(shortened(one, _MOST_PRINTED)).replace("  ", "&nbsp; ").replace("\n", "<br>") for one in said]
    return f"<blockquote><i>{title}</i>{''.join(f'<p><code>{one}</code></p>' for one in lines)}</blockquote>"


def _folded(attachment: AttachmentRecord) -> str:
    """An attachment: text is folded, an image is embedded."""
    name = escape(attachment.name)
    if attachment.kind == "text":
        return f"<details><summary>{name}</summary>\n<pre>{escape(attachment.text)}</pre></details>"
    if media_type := _media_type(attachment.data):
        return f'<img alt="{name}" src="data:{media_type};base64,{base64.b64encode(attachment.data).decode()}">'
    return f'<p class="quiet">{name}</p>'


def _media_type(data: bytes) -> str:
    """The media type of an image, from its content; empty for other files."""
    return next((kind for begins, kind in _MEDIA_TYPES.items() if data.startswith(begins)), "")


def _ending(message: MessageRecord) -> str:
    ending = ending_of(message)
    return f'<p class="quiet">({escape(ending)})</p>' if ending else ""
