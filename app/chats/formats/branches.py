"""Puts the messages of a chat in order: parents first, and nothing that refers to what isn't there."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from app.chats.formats.records import MessageRecord


class Node(msgspec.Struct):
    """A place in the tree of a chat, as a format has it."""

    parent: str | None
    message: MessageRecord | None = None
    """``None`` where nothing is imported: what is below it moves up."""
    thinking: str = ""
    """Of such a node: what the model thought before the answer below it."""


def arranged(nodes: dict[str, Node], current: str | None) -> tuple[list[MessageRecord], str | None]:
    """The messages, each after its parent, and the last message of the shown branch.

    Otherwise they keep the order of ``nodes``. A parent that isn't there, or is below its own child, is none.
    """
    parents, thoughts = _resolved(nodes)
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    order = {name: place for place, name in enumerate(parents)}
    placed: dict[str, None] = {}
    for name, parent in parents.items():
        waiting = [name] if parent is None or parent in placed else []
        while waiting:
            placed[at := waiting.pop()] = None
            # What stands before its parent comes right behind it.
            waiting += [child for child in reversed(children.get(at, [])) if order[child] < order[name]]
    ordered = [_message(nodes[name], name, parents[name], thoughts[name]) for name in placed]
    return ordered, _leaf(nodes, children, current)


def in_a_row(messages: list[MessageRecord]) -> dict[str, Node]:
    """The nodes of a chat without branches. The ids of the messages are not used."""
    return {str(number): Node(str(number - 1) if number else None, one) for number, one in enumerate(messages)}


def _message(node: Node, name: str, parent: str | None, thoughts: str) -> MessageRecord:
    message = node.message
    assert message is not None
    thinking = message.thinking
    if message.role == "assistant":
        thinking = "\n\n".join(filter(None, (thoughts, thinking)))
    return msgspec.structs.replace(message, id=name, parent=parent, thinking=thinking)


def _resolved(nodes: dict[str, Node]) -> tuple[dict[str, str | None], dict[str, str]]:
    """For each message its nearest ancestor that is one, and what was thought in between."""
    parents: dict[str, str | None] = {}
    thoughts: dict[str, str] = {}
    sound = _without_circles(nodes)
    above: dict[str, tuple[str | None, str]] = {}
    """For each node without a message, the message above it and what was thought from there to here."""
    for name, node in nodes.items():
        path, at = [], sound[name]
        while at is not None and nodes[at].message is None and at not in above:
            path.append(at)
            at = sound[at]
        found, thinking = above[at] if at is not None and at in above else (at, "")
        for skipped in reversed(path):
            thinking = "\n\n".join(filter(None, (thinking, nodes[skipped].thinking)))
            above[skipped] = found, thinking
        if node.message is not None:
            parents[name], thoughts[name] = found, thinking
    return parents, thoughts


def _without_circles(nodes: dict[str, Node]) -> dict[str, str | None]:
    """The parents, without those that aren't there and those that close a circle."""
    sound: dict[str, str | None] = {}
    for name in nodes:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in sound and at not in path:
            path[at] = None
            parent = nodes[at].parent
            at = parent if parent in nodes else None
        names = list(path)
        for child, parent in pairwise([*names, None if at in path else at]):
            assert child is not None
            sound[child] = parent
    return sound


def _leaf(nodes: dict[str, Node], children: dict[str | None, list[str]], current: str | None) -> str | None:
    """``current``, or the nearest message above it; without one, the newest end."""
    seen: set[str] = set()
    while current is not None and current in nodes and current not in seen:
        if nodes[current].message is not None:
            return current
        seen.add(current)
        current = nodes[current].parent
    leaf: str | None = None
    while below := children.get(leaf):
        leaf = below[-1]
    return leaf
