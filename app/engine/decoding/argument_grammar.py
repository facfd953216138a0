"""The grammar of a call's arguments if they are written one by one, in llguidance's notation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.engine.decoding import Vocabulary
from app.engine.decoding.grammar import is_mark
from app.protocol.notations import KEY, PLAIN, VALUE, Around, Notation, in_order
from app.protocol.tool_schemas import Parameters, Schema, TextValue, branches, choices, parameters_of, text_value, types
from app.protocol.tools import Tool, ToolFormat

_SIGNS = re.compile(r"([\[\]{}().*+?|^$/\\])")
"""Characters with a special meaning in a regular expression."""
_KEY, _BARE_KEY = r"[^<>\"\n]{1,128}", r"[^<>\"'\n:=,(){}\[\]\/\\]{1,128}"
"""Names that can be told apart from what surrounds them: tags, or less than tags."""
_ANY = "\0"
_NOTHING = '""'
_MOST_ITEMS = 100
"""Larger limits on the length of an array aren't enforced."""
_PLACES = re.compile(f"([{KEY}{VALUE}])")
_CHARACTER = r"([^\\'\n\r\t]|\\[\\'nrt])"
"""One character of a string with escapes."""


class Literals:
    """Fixed texts in a grammar, for one vocabulary; without a vocabulary, marks are spelled out."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        self.marks: dict[int, bytes] = {}
        """The control tokens that were used, with their text."""

    def __call__(self, text: str) -> str:
        """``text`` as part of a rule."""
        return _shown(self.parts(text))

    def behind(self, text: str, start: str) -> str:
        """``text`` without its ``start``, as part of a rule."""
        parts = list(self.parts(text))
        for one in self.parts(start) if start else ():
            first = parts.pop(0)
            if isinstance(first, str) and isinstance(one, str) and first != one:
                parts.insert(0, first.removeprefix(one))
        return _shown(parts)

    def split(self, text: str) -> tuple[str, str]:
        """The part of ``text`` that is spelled out before its first mark, and the rest as part of a rule."""
        first, *rest = self.parts(text)
        return (first, _shown(rest)) if isinstance(first, str) else ("", _shown([first, *rest]))

    def parts(self, text: str) -> Iterator[str | int]:
        """``text`` with token ids in place of the marks that are tokens."""
        rest = text
        tokens = self._vocabulary.tokenize(text, special=True, bos=False) if self._vocabulary else []
        for token in tokens:
            assert self._vocabulary is not None
            name = self._vocabulary.mark(token)
            if not name or name not in rest or not is_mark(name, self._vocabulary.piece(token)):
                continue
            before, _, rest = rest.partition(name)
            if before:
                yield before
            self.marks[token] = name.encode()
            yield token
        if rest:
            yield rest


def _shown(parts: Iterable[str | int]) -> str:
    shown = (f"<[{part}]>" if isinstance(part, int) else json.dumps(part, ensure_ascii=False) for part in parts)
    return " ".join(one for one in shown if one != '""')


def pattern(text: str) -> str:
    """``text`` escaped for a regular expression."""
    return _SIGNS.sub(r"\\\1", text).replace("\n", r"\n")


def json_rule(schema: Any) -> str:
    """JSON that follows a schema, as part of a rule."""
    from app.helper.grammars import CALL_OPTIONS  # imports llguidance

    return f"%json {json.dumps({**schema, 'x-guidance': CALL_OPTIONS} if isinstance(schema, dict) else schema)}"


class ArgumentGrammar:
    """The rules of one tool's arguments, in the schema's order."""

    def __init__(self, known: ToolFormat, tool: Tool, forced: dict[str, Any], literals: Literals, name: str) -> None:
        """``forced``: the part of the tool's schema that can be forced. ``name``: the name of the rule for all of them;
        the other rules' names begin with it."""
        self._forced = forced
        self._literals = literals
        self._name = name
        self._count = 0
        self._values: dict[tuple[int, str], str] = {}
        """The names of the rules for values, by notation and schema."""
        self.rules: list[str] = []
        found, schemas = parameters_of(tool.parameters), parameters_of(forced).schemas
        self.notes = [f"“{keyword}” at the top level" for keyword in found.not_followed]
        """The parts of the schema that this form of calls can't force."""
        around = ("", known.between, "")
        listed = self._entries(found, tool.parameters, schemas, around, known.members, known.notation)
        self.rules.append(f"{name}: {listed or _NOTHING}")

    def _new(self) -> str:
        self._count += 1
        return f"{self._name}x{self._count}"

    def _rule(self, expression: str) -> str:
        """Add a rule; returns its name."""
        self.rules.append(f"{(name := self._new())}: {expression}")
        return name

    def _entries(
        self,
        known: Parameters,
        whole: Schema,
        forced: Mapping[str, Any],
        around: Around,
        ways: tuple[str, ...],
        notation: Notation,
    ) -> str:
        """An object with the arguments ``known``, whose schemas are parts of ``whole``; see `Notation.entries`."""
        key_pattern = _BARE_KEY if notation.quotes or notation.object else _KEY
        found: list[tuple[str, bool]] = []
        for key, one in sorted(known.schemas.items(), key=in_order) if notation.sorts else known.schemas.items():
            if re.fullmatch(key_pattern, key):
                rule = self._entry(ways, key, text_value(one, whole), forced.get(key, {}), notation)
                found.append((rule, key in known.required))
            else:
                self.notes.append(f"an argument called {json.dumps(key)}")
        begins, between, ends = map(self._literals, around)
        if known.any_name and ways[0].count(KEY) == 1:
            rule = self._entry(ways, _ANY + key_pattern, TextValue(), {}, notation)
            found.append((self._rule(_repeated(rule, between)), False))
        return " ".join(filter(None, (begins, self._listed(found, between), ends)))

    def _listed(self, entries: list[tuple[str, bool]], between: str) -> str:
        """Entries with ``between`` between them; some may be optional."""
        if not between:
            return " ".join(rule if required else f"{rule}?" for rule, required in entries)
        first = behind = _NOTHING
        """The entries that are left: if they come first, and if they follow another one."""
        for rule, required in reversed(entries):
            first = self._rule(f"{rule} {behind}" + ("" if required else f" | {first}"))
            behind = self._rule(f"({between} {rule}){'' if required else '?'} {behind}")
        return "" if first == _NOTHING else first

    def _entry(self, ways: tuple[str, ...], key: str, text: TextValue | None, forced: Any, notation: Notation) -> str:
        """The rule for an entry. ``key``: its name, or `_ANY` and a pattern. ``text``: how to write it if strings
        have no quotes."""
        if text is None or notation.quotes:
            return self._rule(self._around(ways[-1], key, self._value(forced, notation)))
        self.notes += [f"“{keyword}” at #/properties/{key}" for keyword in text.not_followed]
        listed = dict(text.choices or {})
        others = list[str]()
        if ways[1:] and (text.others or any(not isinstance(value, str) for value in listed.values())):
            others = [self._around(ways[1], key, self._value(forced, notation))]
            listed = {shown: value for shown, value in listed.items() if isinstance(value, str)}
        if text.choices is not None:
            one_of = [f"({' | '.join(json.dumps(one, ensure_ascii=False) for one in listed)})"] if listed else []
            return self._rule(" | ".join([*(self._around(ways[0], key, one) for one in one_of), *others]))
        begins, _, after = ways[0].partition(VALUE)
        return self._rule(" | ".join([self._text(self._around(begins, key), text, after.replace(KEY, key)), *others]))

    def _around(self, entry: str, key: str, value: str = "") -> str:
        """An ``entry`` with this ``value``, as part of a rule."""
        places = {VALUE: value, KEY: f"/{key.removeprefix(_ANY)}/"}
        if not key.startswith(_ANY):
            entry = entry.replace(KEY, key)
        parts = (places[part] if part in places else self._literals(part) for part in _PLACES.split(entry))
        return " ".join(filter(None, parts))

    def _text(self, begins: str, text: TextValue, after: str) -> str:
        """A text between ``begins``, which is part of a rule, and what comes ``after`` it."""
        spelled, rest = self._literals.split(after)
        any_text = f"(?s:.{{{text.least},{'' if text.most is None else text.most}}}){pattern(spelled)}"
        if not rest:
            self.rules.append(f"{(rule := self._new())}[lazy]: /{any_text}/")
            return f"{begins} {rule}"
        optional = "?" if not spelled and not text.least else ""
        is_some = "" if spelled else " & /(?s:.+)/"
        self.rules.append(f"{(rule := self._new().upper())}: /{any_text}/ & ~/(?s:.*){pattern(after)}(?s:.*)/{is_some}")
        return f"{begins} {rule}{optional} {rest}"

    def _value(self, schema: Any, notation: Notation) -> str:
        """The rule for a value that isn't just text."""
        name = (id(notation), json.dumps(schema))
        if name not in self._values:
            self._values[name] = rule = self._new()
            ways = [self._json(schema)] if notation == PLAIN else self._ways(schema, notation)
            self.rules.append(f"{rule}: {' | '.join(ways)}")
        return self._values[name]

    def _json(self, schema: Any) -> str:
        definitions = {name: self._forced[name] for name in ("$defs", "definitions") if name in self._forced}
        return json_rule({**definitions, **schema} if isinstance(schema, dict) else schema)

    def _ways(self, schema: Any, notation: Notation) -> Iterator[str]:
        """The ways in which a value may be written."""
        for one in branches(schema, self._forced):
            if (listed := choices(one)) is not None:
                yield from (self._literals(notation.write(value)) or _NOTHING for value in listed)
                continue
            kinds = types(one) - ({"integer"} if "number" in types(one) else frozenset())
            yield from (self._kind(kind, {**one, "type": kind}, notation) for kind in sorted(kinds))

    def _kind(self, kind: str, schema: Schema, notation: Notation) -> str:
        """A value of this type."""
        if kind == "string":
            text = text_value(schema, self._forced) or TextValue()
            self.notes += [f"“{keyword}” within an argument" for keyword in text.not_followed]
            if notation.escapes:
                return self._rule(f"/'{_CHARACTER}{{{text.least},{'' if text.most is None else text.most}}}'/")
            return self._rule(self._text(self._literals(notation.quotes), text, notation.quotes))
        if kind == "object" and notation.object:
            known = parameters_of(schema, self._forced)
            members = self._entries(known, self._forced, known.schemas, notation.object, (notation.member,), notation)
            return members or _NOTHING
        if kind == "array" and notation.array:
            inner, items = notation.inner, schema.get("items", {})
            item = self._entry((notation.item,), "", text_value(items, self._forced), items, inner)
            begins, between, ends = map(self._literals, notation.array)
            counts = (schema.get(name) for name in ("minItems", "maxItems"))
            return " ".join(filter(None, (begins, _repeated(item, between, *counts), ends)))
        if kind in ("boolean", "null") and notation.words:
            named = ("null",) if kind == "null" else ("true", "false")
            return " | ".join(json.dumps(notation.words.get(word, word)) for word in named)
        return self._rule(self._json(schema))


def _repeated(entry: str, between: str, least: int | None = None, most: int | None = None) -> str:
    """An entry ``least`` to ``most`` times, with ``between`` between them."""
    least, most = min(least or 0, _MOST_ITEMS), None if most is None or most > _MOST_ITEMS else most
    if most == 0:
        return ""
    more = f"({between} {entry}){{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
    return f"{entry} {more}" if least else f"({entry} {more})?"
