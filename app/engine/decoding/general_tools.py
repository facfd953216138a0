"""Chats with tools for templates that can't take them as they are.

Those that don't know any tools, or write calls in a form that isn't known here, get the tools as JSON in the system
prompt, calls as text of the answer, and results as messages of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from app.engine.decoding.chat_template import definition
from app.engine.decoding.tools import written
from app.protocol.commands import Message
from app.protocol.tools import ARGUMENTS, GENERAL, NAME, Tool

_EXAMPLE = GENERAL.call.replace(NAME, "the name").replace(ARGUMENTS, '{"argument": "value"}')
_INTRODUCTION = f"""You can call functions. Each of these lines describes one:
%s

To call a function, write its name and its arguments like this, and nothing behind it:
{_EXAMPLE}
For several calls, write several such blocks. You get the results in the next message. Where no function helps, answer \
as usual."""


def as_text(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The chat with ``tools``, for a template that gets no tools."""
    turns = [one for is_result, some in groupby(messages, _is_result) for one in _turns(list(some), is_result)]
    if not tools:
        return turns
    lines = "\n".join(msgspec.json.encode(definition(tool)["function"]).decode() for tool in tools)
    introduction, system = _INTRODUCTION % lines, turns[0] if turns and turns[0].role == "system" else None
    text = f"{system.content}\n\n{introduction}" if system and system.content else introduction
    return [Message(role="system", content=text), *(turns[1:] if system else turns)]


def one_by_one(messages: Sequence[Message]) -> list[Message]:
    """The chat with one call in each message, followed by its result."""
    turns: list[Message] = []
    for one in messages:
        if one.role == "tool":
            called = (
                place for place, turn in enumerate(turns, 1) if one.tool_call_id in (c.id for c in turn.tool_calls)
            )
            turns.insert(max(called, default=len(turns)), one)
            continue
        first, *others = one.tool_calls or (None,)
        turns.append(msgspec.structs.replace(one, tool_calls=(first,)) if first else one)
        turns += [msgspec.structs.replace(one, content="", thinking="", tool_calls=(call,)) for call in others if call]
    return turns


def _is_result(message: Message) -> bool:
    return message.role == "tool"


def _turns(messages: Sequence[Message], is_result: bool) -> Iterator[Message]:
    if is_result:
        results = (f"Result of {one.tool_name or 'the function'}:\n{one.content}" for one in messages)
        yield Message(role="user", content="\n\n".join(results))
        return
    for one in messages:
        content = "\n".join(filter(None, (one.content, written(GENERAL, one.tool_calls))))
        yield msgspec.structs.replace(one, content=content, tool_calls=())
