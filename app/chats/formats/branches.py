"""Puts the messages of a chat in order: parents first, and nothing that refers to what isn't there."""

from __future__ import annotations

from collections.abc import Container
from itertools import pairwise

import msgspec

from app.chats.formats.records import MessageRecord


class Node(msgspec.Struct):
    """A place in the tree of a chat, as a format has it."""

    parent: str | None
    message: MessageRecord | None = None
    """``None`` where nothing is imported: what is below it moves up."""
    joins: bool = False
    """Whether it becomes the beginning of the answers below it, where those are all there is."""


def arranged(nodes: dict[str, Node], current: str | None) -> tuple[list[MessageRecord], str | None]:
    """The messages, each after its parent, and the last message of the shown branch.

    Otherwise they keep the order of ``nodes``. A parent that isn't there, or is below its own child, is none.
    """
    parents = _resolved(nodes)
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
    found: dict[str, MessageRecord] = {}
    joined: dict[str | None, MessageRecord] = {}
    for name in placed:
        given = nodes[name].message
        assert given is not None
        message = msgspec.structs.replace(given, id=name, parent=parents[name])
        if (above := joined.get(message.parent)) is not None:
            message = _join(above, message)
        below = [nodes[child].message for child in children.get(name, [])]
        if nodes[name].joins and below and all(one is not None and one.role == "assistant" for one in below):
            joined[name] = message
        else:
            found[name] = message
    return list(found.values()), _leaf(nodes, children, current, found)


def in_a_row(messages: list[MessageRecord]) -> dict[str, Node]:
    """The nodes of a chat without branches. The ids of the messages are not used."""
    return {str(number): Node(str(number - 1) if number else None, one) for number, one in enumerate(messages)}


def _join(above: MessageRecord, below: MessageRecord) -> MessageRecord:
    """``below``, beginning with what ``above`` says."""
    return msgspec.structs.replace(
        below,
        parent=above.parent,
        text="\n\n".join(filter(None, (above.text, below.text))),
        thinking="\n\n".join(filter(None, (above.thinking, below.thinking))),
        attachments=[*above.attachments, *below.attachments],
    )


def _resolved(nodes: dict[str, Node]) -> dict[str, str | None]:
    """For each message its nearest ancestor that is one."""
    parents: dict[str, str | None] = {}
    sound = _without_circles(nodes)
    above: dict[str, str | None] = {}
    """For each node without a message, the message above it."""
    for name, node in nodes.items():
        path, at = [], sound[name]
        while at is not None and nodes[at].message is None and at not in above:
            path.append(at)
            at = sound[at]
        found = above[at] if at is not None and at in above else at
        above.update(dict.fromkeys(path, found))
        if node.message is not None:
            parents[name] = found
    return parents


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


def _leaf(
    nodes: dict[str, Node],
    children: dict[str | None, list[str]],
    current: str | None,
    found: Container[str],
) -> str | None:
    """``current``, or the nearest message above it; without one, the newest end."""
    seen: set[str] = set()
    while current is not None and current in nodes and current not in seen:
        if current in found:
            return current
        if nodes[current].message is not None:
            break  # it became the beginning of what is below
        seen.add(current)
        current = nodes[current].parent
    leaf = current if current in nodes and current not in seen else None
    while below := children.get(leaf):
        leaf = below[-1]
    return leaf
