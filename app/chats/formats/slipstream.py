"""Slipstream's own JSON with everything in a chat: a list with one chat per line."""

from __future__ import annotations

from typing import Any

import msgspec

from app import system
from app.chats.formats.records import ChatRecord, LeftOut, MessageRecord, Node, UnusableError, arranged
from app.chats.formats.values import mapping, mappings

NAME = "slipstream"
VERSION = 1
_KEY = "slipstream_chat"
_LEAST_TOKEN, _MOST_TOKEN = -(2**31), 2**31 - 1
_LARGEST_SEED = 2**63


def recognizes(record: dict[str, Any]) -> bool:
    return _KEY in record


def read(record: dict[str, Any], left_out: LeftOut) -> ChatRecord:
    """Raises `UnusableError`."""
    version = record[_KEY]
    if not isinstance(version, int) or version > VERSION:
        raise UnusableError("newer")
    nodes: dict[str, Node] = {}
    for one in mappings(record.get("messages")):
        try:
            message = system.convert(one, MessageRecord)
        except msgspec.ValidationError:
            left_out["damaged"] += 1
            parent = one.get("parent")
            nodes[str(one.get("id", ""))] = Node(parent if isinstance(parent, str) else None)
        else:
            nodes[message.id] = Node(message.parent, _checked(message))
    try:
        chat = system.convert({**record, "messages": [], "settings": mapping(record.get("settings"))}, ChatRecord)
    except msgspec.ValidationError:
        raise UnusableError("damaged") from None
    messages, current = arranged(nodes, chat.current)
    return msgspec.structs.replace(chat, messages=messages, current=current)


def write(chat: ChatRecord) -> str:
    """One chat as a line, without the list around it."""
    content = msgspec.to_builtins(chat)
    content.pop("source", None)
    return msgspec.json.encode({_KEY: VERSION, **content}).decode()


def _checked(message: MessageRecord) -> MessageRecord:
    tokens = message.tokens if all(_LEAST_TOKEN <= token <= _MOST_TOKEN for token in message.tokens) else []
    seed = message.seed if message.seed is not None and -_LARGEST_SEED <= message.seed < _LARGEST_SEED else None
    return msgspec.structs.replace(message, tokens=tokens, seed=seed)
