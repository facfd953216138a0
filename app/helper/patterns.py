"""Regular expressions of JSON schemas (ECMAScript's) as llguidance can force them: it has neither look-around nor word
boundaries. A look-ahead at the start is another pattern that has to match, too; the others are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])")
_AHEAD = re.compile(r"\^?\(\?([=!])")
_ONE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}|*+?^$]")
"""What stands for one character."""
_ONLY = re.compile(rf"\^?({_ONE.pattern})([*+])\$")
_NOT_LAST = re.compile(rf"\(\?<!({_ONE.pattern})\)\$\Z")
_CHOICE = re.compile(r"(\.\*)?\((?:\?:)?([^()\[\]\\]*)\)(\$?)")
_NOTHING_BEHIND = "(?:$|\n)"


def forced_patterns(pattern: str, compiles: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Patterns that a text has to match, all of them, and whether together they mean what ``pattern`` does; else they
    match more."""
    pattern = _in_classes(pattern)
    if compiles(pattern):
        return [pattern], True
    found, is_exact, rest = list[str](), True, pattern
    while (head := _AHEAD.match(rest)) and (head[0][0] == "^" or rest is not pattern):
        end = _group_end(rest, head.end())
        inner, rest = rest[head.end() : end - 1], rest[end:]
        wanted = [f"^(?:{inner})"] if head[1] == "=" else _not_at_start(inner)
        found += filter(compiles, wanted)
        is_exact = is_exact and bool(wanted) and all(map(compiles, wanted))
    if rest is not pattern:
        rest = f"^{rest}"
    if tail := _NOT_LAST.search(rest):
        found.append(f"(?:^|{_other(tail[1])})$")
        rest = f"{rest[: tail.start()]}$"
    if not compiles(rest):
        is_exact, rest = False, _without_look_around(rest)
    if rest != "^" and compiles(rest):
        found.append(rest)
    return found, is_exact


def _in_classes(pattern: str) -> str:
    """With signs escaped that mean something within ``[]`` only to llguidance."""
    return re.sub(r"\\.|\[\^?(?:\\.|[^\]\\])*\]", lambda one: _class(one[0]), pattern, flags=re.DOTALL)


def _class(text: str) -> str:
    if text[0] != "[":
        return text
    return "[" + re.sub(r"\\.|[\[&~]", lambda one: one[0] if len(one[0]) > 1 else "\\" + one[0], text[1:])


def _group_end(text: str, start: int) -> int:
    """Where the group ends whose inside starts at ``start``."""
    depth = 1
    for one in re.finditer(r"\\.|\[\^?(?:\\.|[^\]\\])*\]|[()]", text[start:], re.DOTALL):
        depth += {"(": 1, ")": -1}.get(one[0], 0)
        if not depth:
            return start + one.end()
    return len(text)


def _without_look_around(pattern: str) -> str:
    while found := _LOOK_AROUND.search(pattern):
        pattern = pattern[: found.start()] + "(?:)" + pattern[_group_end(pattern, found.end()) :]
    return re.sub(r"(\\[^bB])|\\[bB]", r"\1", pattern)


def _not_at_start(inner: str) -> list[str]:
    """Patterns of the texts that don't begin with what ``inner`` matches; empty: it isn't simple enough."""
    if choice := _CHOICE.fullmatch(inner):
        each = [_not_at_start(f"{choice[1] or ''}{one}{choice[3]}") for one in choice[2].split("|")]
        return [one for found in each for one in found] if all(each) else []
    if whole := _ONLY.fullmatch(inner):  # another sign than these has to be in it
        return [_other(whole[1]) if whole[2] == "*" else f"^$|{_other(whole[1])}"]
    anywhere = inner.startswith(".*")
    rest = inner.removeprefix(".*")
    is_end, rest = rest.endswith("$") and not rest.endswith("\\$"), rest.removesuffix("$")
    ones = _ONE.findall(rest)
    if "".join(ones) != rest or not ones or (anywhere and (is_end or len(set(ones)) > 1 or len(ones) > 2)):
        return []
    if anywhere:
        other, one = _other(ones[0], "\n"), _class_of(ones[0])
        return [
            f"^(?:{other}|{one}{other})*{one}?{_NOTHING_BEHIND}" if len(ones) > 1 else f"^{other}*{_NOTHING_BEHIND}"
        ]
    left = "[\\s\\S]" if is_end else ""
    for one in reversed(ones):
        behind = f"|{_class_of(one)}{left}" if left else ""
        left = f"(?:$|{_other(one)}{behind})"
    return [f"^{left}"]


def _class_of(one: str) -> str:
    return r"[^\n]" if one == "." else one


def _other(one: str, also: str = "") -> str:
    """Any other character than ``one``, which stands for a character, and than ``also``."""
    if one == ".":
        return r"[\n]"
    if one.startswith("[^"):
        kept = f"[{one[2:]}"
        return kept if not also else kept.replace("\n", "")
    inner = one[1:-1] if one.startswith("[") else one if one.startswith("\\") else re.escape(one)
    return f"[^{inner}{also}]"
