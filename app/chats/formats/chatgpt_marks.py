"""Marks in ChatGPT's texts: characters for private use around what only its own page can show.

``\\ue200KIND\\ue202FIELD\\ue202FIELD…\\ue201``. What a reader would miss is kept: names, links and formulas. References
to sources become links if the message says where they lead.
"""

from __future__ import annotations

import json
import re
from typing import Any

from app.chats.formats.records import LeftOut
from app.chats.formats.values import items, mapping, mappings, text

_MARK = re.compile(
    "\ue200+(?P<fields>[^\ue200\ue201]*)\ue201|\ue200+(?P<cut>[^\ue200\ue201\n]*)"
    r"|【\d+(?::\d+)?†[^】\n]{0,200}】|:contentReference\[oaicite:\d+\]\{index=\d+\}"
)
_OTHERS = re.compile("[\ue200-\ue206]")
_REFERENCE = re.compile(r"turn\d+[a-z_]*\d+|L\d+(?:-L?\d+)?")
"""To a source, or lines of it."""
_ADDRESS = re.compile(r"https?://\S+")
_FORMULA = re.compile(r'math_block\w*"\s*:\s*\{.*?"content"\s*:\s*"(.*?)"\s*\}', re.DOTALL)
_LONGEST_FORMULA = 10_000
_NAMED = ("entity", "product_entity")
_SOURCES = ("cite", "filecite", "memcite", "navlist")


def without_marks(written: str, metadata: dict[str, Any], left_out: LeftOut) -> str:
    """``written`` as a reader should see it; ``metadata`` is that of its message. What isn't kept is counted."""
    known = {text(one.get("matched_text")): one for one in mappings(metadata.get("content_references"))}

    def instead(found: re.Match[str]) -> str:
        kind, *fields = (found["fields"] or found["cut"] or "").split("\ue202")
        if kind not in (*_NAMED, "url") and (links := _links(known.get(found[0], {}))):
            return links if written[max(0, found.start() - 1)].isspace() else f" {links}"
        return _shown(kind, fields, left_out)

    return _OTHERS.sub("", _MARK.sub(instead, written))


def _links(reference: dict[str, Any]) -> str:
    """Where a reference leads, as Markdown; empty if it doesn't say."""
    if alt := text(reference.get("alt")):
        return alt
    sources = [*mappings(reference.get("items")), reference]
    links = [_link(text(one.get("attribution")) or text(one.get("title")), text(one.get("url"))) for one in sources]
    return f"({', '.join(found)})" if (found := [link for link in links if link]) else ""


def _link(name: str, address: str) -> str:
    if not _ADDRESS.fullmatch(address):
        return ""
    title = " ".join(name.replace("[", "(").replace("]", ")").split())
    target = f"<{address}>" if re.search(r"[()\\]", address) else address
    return f"[{title or address.split('/')[2]}]({target})"


def _shown(kind: str, fields: list[str], left_out: LeftOut) -> str:
    whole = "\ue202".join(fields)
    if kind in _NAMED:
        return _name(whole)
    if kind == "genui" and len(whole) < _LONGEST_FORMULA and (formula := _FORMULA.search(whole)):
        return f"\n$$\n{_unescaped(formula[1])}\n$$\n"
    if kind == "image_group":
        left_out["images"] += 1
        return ""
    if kind == "products":
        return ", ".join(text(items(one)[-1]) for one in items(_json(whole).get("selections")) if items(one))
    address = next((one for one in fields if _ADDRESS.fullmatch(one)), "")
    said = [one for one in fields if one != address and not _REFERENCE.fullmatch(one) and one[:1] not in ("{", "[")]
    if (not said and not address) or kind == "navlist":
        left_out["references" if not kind or kind in _SOURCES else "widgets"] += 1
        return ""
    return _link(said[0] if said else "", address) or said[0]


def _name(entity: str) -> str:
    """Of a person, a place …: the second text of a list."""
    try:
        texts = [one for one in items(json.loads(entity)) if isinstance(one, str)]
    except (ValueError, RecursionError):
        texts = re.findall(r'"([^"]+)"', entity) or [entity]
    return next(iter(texts[1:2] or texts), "")


def _json(value: str) -> dict[str, Any]:
    try:
        return mapping(json.loads(value))
    except (ValueError, RecursionError):
        return {}


def _unescaped(value: str) -> str:
    """The text between quotation marks in JSON; some have a formula's backslashes as they are."""
    try:
        found = json.loads(f'"{value}"')
        return found if re.search(r"[\x00-\x1f]", found) is None else value
    except ValueError:
        return value
