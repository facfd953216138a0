"""Reduces JSON schemas to the part that a grammar can enforce. Leaving out the rest only allows more answers; it is
noted, and finished answers are checked against the whole schema. Runs in the helper process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jsonschema
import referencing.exceptions
from jsonschema import validators
from jsonschema_specifications import REGISTRY
from referencing.jsonschema import DRAFT202012, specification_with

# JSON schemas' regular expressions (ECMAScript's) for llguidance, which has neither look-around nor word boundaries. A
# look-ahead at the start becomes a separate pattern that also has to match; others are left out.

_LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])")
_AHEAD = re.compile(r"\^?\(\?([=!])")
_ONE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}|*+?^$]")
"""A pattern for one character."""
_ONLY = re.compile(rf"\^?({_ONE.pattern})([*+])\$")
_NOT_LAST = re.compile(rf"\(\?<!({_ONE.pattern})\)\$\Z")
_CHOICE = re.compile(r"(\.\*)?\((?:\?:)?([^()\[\]\\]*)\)(\$?)")
_NOTHING_BEHIND = "(?:$|\n)"


def forced_patterns(pattern: str, compiles: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Patterns that a text must all match, and whether together they are equivalent to ``pattern``; if not, they match
    more."""
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
    """``pattern`` with characters escaped that are special inside ``[]`` only to llguidance."""
    return re.sub(r"\\.|\[\^?(?:\\.|[^\]\\])*\]", lambda one: _class(one[0]), pattern, flags=re.DOTALL)


def _class(text: str) -> str:
    if text[0] != "[":
        return text
    return "[" + re.sub(r"\\.|[\[&~]", lambda one: one[0] if len(one[0]) > 1 else "\\" + one[0], text[1:])


def _group_end(text: str, start: int) -> int:
    """The end of the group whose content starts at ``start``."""
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
    """Patterns for texts that don't begin with a match of ``inner``; empty if it isn't simple enough."""
    if choice := _CHOICE.fullmatch(inner):
        each = [_not_at_start(f"{choice[1] or ''}{one}{choice[3]}") for one in choice[2].split("|")]
        return [one for found in each for one in found] if all(each) else []
    if whole := _ONLY.fullmatch(inner):  # the text has to contain some other character
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
    """A pattern for any character except ``one`` (a pattern itself) and ``also``."""
    if one == ".":
        return r"[\n]"
    if one.startswith("[^"):
        kept = f"[{one[2:]}"
        return kept if not also else kept.replace("\n", "")
    inner = one[1:-1] if one.startswith("[") else one if one.startswith("\\") else re.escape(one)
    return f"[^{inner}{also}]"


Part = dict[str, Any]
Compiles = Callable[[Part], bool]
"""Whether llguidance accepts a schema."""

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
"""The ones that are enforced; others are just annotations, as JSON Schema says."""
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties")
_AS_IT_IS = ("const", "enum", "format", "pattern", "required", "type", *_COUNTS, *_NUMBERS)
_UNFORCED = (
    "not",
    "if",
    "contains",
    "uniqueItems",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
_APPLIED_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef")
_UNKNOWN = (referencing.exceptions.Unresolvable, AttributeError, RecursionError, ValueError)
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
"""In their schemas, ``$ref`` overrides its siblings."""


class InvalidError(Exception):
    """A schema isn't valid; the message says why and where."""


class Forced(NamedTuple):
    """The part of a schema that a grammar can enforce."""

    schema: Part
    parts: list[tuple[str, Part]]
    """The subschemas of ``schema`` (the same objects) with their JSON pointers in the original, inner ones first."""
    notes: list[str]
    """What isn't enforced, by keyword and place."""


def forced(schema: Any, compiles: Compiles, *, lenient: bool = False) -> Forced:
    """The part of ``schema`` that can be enforced; ``lenient`` drops invalid parts, too. Raises `InvalidError`."""
    rewriting = _Rewriting(schema, compiles, lenient=lenient)
    root = rewriting.part(schema, "#", rewriting.resolver)
    whole: Part = root if isinstance(root, dict) else {} if root else {"enum": []}
    if rewriting.definitions:
        whole["$defs"] = rewriting.definitions
    return Forced(whole, rewriting.parts, rewriting.notes)


class _Rewriting:
    """Rewrites one schema. References become references to its own definitions, so nothing else is looked up."""

    def __init__(self, schema: Any, compiles: Compiles, *, lenient: bool) -> None:
        self.notes: list[str] = []
        self.parts: list[tuple[str, Part]] = []
        self.definitions: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._compiles = compiles
        self._lenient = lenient
        self._is_old = isinstance(schema, dict) and any(one in str(schema.get("$schema")) for one in _OLD_DRAFTS)
        self.resolver = _resolver(schema)

    def part(self, schema: Any, place: str, resolver: Any) -> Part | bool:
        """A subschema at ``place``, reduced to what can be enforced."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self._refuse(place, "a schema is a JSON object")
            return True
        if self._is_old and "$ref" in schema:
            schema = {"$ref": schema["$ref"]}
        if isinstance(name := schema.get("$id"), str) and place != "#" and not name.startswith("#"):
            resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
        found: Part = {}
        if schema.get("not") in ({}, True):
            return False
        for keyword, value in self._modern(schema, place).items():
            self._keep(found, keyword, value, f"{place}/{_escaped(keyword)}", resolver)
            if keyword in _UNFORCED and not _says_nothing(keyword, value):
                self._note(keyword, place)
        self._strings(found, place)
        self._objects(found, place)
        self.parts.append((place, found))
        if schema.get("nullable") is True:
            found = {"anyOf": [found, {"type": "null"}]}
        return found

    def _keep(self, found: Part, keyword: str, value: Any, place: str, resolver: Any) -> None:
        """Put the enforceable part of a ``keyword`` into ``found``."""
        if keyword in _LISTS:
            found[keyword] = [self.part(one, f"{place}/{i}", resolver) for i, one in enumerate(value)]
        elif keyword in _MAPS:
            inner = value.items()
            found[keyword] = {name: self.part(one, f"{place}/{_escaped(name)}", resolver) for name, one in inner}
        elif keyword in ("items", "additionalProperties"):
            found[keyword] = self.part(value, place, resolver)
        elif keyword == "$ref":
            self._refer(found, value, place, resolver)
        elif keyword in _AS_IT_IS:
            found[keyword] = value

    def _refer(self, found: Part, reference: str, place: str, resolver: Any) -> None:
        try:
            target = resolver.lookup(reference)
        except (*_UNKNOWN, TypeError):  # an invalid part on the way
            self._note("$ref", place.rpartition("/")[0])
            return
        name = self._names.get(id(target.contents))
        if name is None:
            name = self._names[id(target.contents)] = str(len(self._names))
            self.definitions[name] = True  # reserves its place in the order
            self.definitions[name] = self.part(target.contents, _shown(reference), target.resolver)
        found["$ref"] = f"#/$defs/{name}"

    # ------------------------------------------------------------ rewriting older drafts

    def _modern(self, schema: Part, place: str) -> Part:
        """The schema with draft 2020-12's keywords, without those that have invalid values."""
        found = {keyword: value for keyword, value in schema.items() if self._is_valid(keyword, value, place)}
        for keyword, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(found.get(keyword), bool) and found.pop(keyword) and limit in found:
                found[keyword] = found.pop(limit)
        if isinstance(found.get("items"), list):
            found["prefixItems"] = found.pop("items")
            if "additionalItems" in found:
                found["items"] = found["additionalItems"]
        _unevaluated(found)
        _without_not(found)
        _named_keys(found)
        return found

    def _is_valid(self, keyword: str, value: Any, place: str) -> bool:
        """Whether ``keyword`` may have this ``value``. If not, raises `InvalidError` unless lenient."""
        if keyword == "required" and isinstance(value, bool):
            return False  # draft 3's, inside a property
        problem = _problem(keyword, value)
        if problem:
            self._refuse(place, problem)
        return not problem

    # ------------------------------------------------------------ combinations of keywords

    def _strings(self, found: Part, place: str) -> None:
        for name in _COUNTS:
            if name in found:
                found[name] = int(found[name])
        if found.get("format") not in _FORMATS:
            found.pop("format", None)
        if "pattern" not in found:
            return
        patterns, is_exact = forced_patterns(found.pop("pattern"), self._takes_pattern)
        if not is_exact:
            self._note("pattern", place)
        if len(patterns) == 1:
            found["pattern"] = patterns[0]
        elif patterns:
            found["allOf"] = [*found.get("allOf", ()), *({"pattern": one} for one in patterns)]
        length: Part = {name: found[name] for name in ("format", "minLength", "maxLength") if name in found}
        text: Part = {"type": "string", **length, "allOf": [{"pattern": one} for one in patterns]}
        if "format" in found and patterns and not self._compiles(text):
            del found["format"]

    def _takes_pattern(self, pattern: str) -> bool:
        return self._compiles({"type": "string", "pattern": pattern})

    def _objects(self, found: Part, place: str) -> None:
        if found.get("additionalProperties") is False and "required" in found and not found.get("patternProperties"):
            possible = [name for name in found["required"] if name in found.get("properties", {})]
            if len(possible) < len(found["required"]):
                self._note("required", place)
                found["required"] = possible
        names = dict.fromkeys(found.get("properties", {}), True)
        alone: Part = {"type": "object", "properties": names, "required": found.get("required", [])}
        if "patternProperties" in found:
            known = {_same_pattern(one, self._takes_pattern): part for one, part in found["patternProperties"].items()}
            found["patternProperties"] = known
            if not self._compiles({**alone, "patternProperties": dict.fromkeys(known, True)}):
                self._note("patternProperties", place)
                del found["patternProperties"]
                found.pop("additionalProperties", None)
        for keyword in ("minProperties", "maxProperties"):
            if keyword in found and not self._compiles({**alone, keyword: found[keyword]}):
                self._note(keyword, place)
                del found[keyword]

    # ------------------------------------------------------------ notes

    def _note(self, keyword: str, place: str) -> None:
        self.notes.append(note(keyword, place))

    def _refuse(self, place: str, problem: str) -> None:
        if not self._lenient:
            raise InvalidError(f"at {where(place)}: {problem}")
        self.notes.append(f"{where(place)} ({problem})")


def note(keyword: str, place: str) -> str:
    """A note on a keyword that isn't enforced."""
    return f"“{keyword}” at {where(place)}"


def problem_of(schema: Any, answer: str) -> str | None:
    """Why a finished ``answer`` doesn't match the original ``schema``; empty: it does; ``None``: it can't be checked.
    Formats are ignored, as in draft 2020-12."""
    try:
        value = json.loads(answer)
    except ValueError as error:
        return str(error)
    try:
        problem = next(_validator(schema).iter_errors(value), None)
    except (*_UNKNOWN, TypeError, jsonschema.exceptions.UnknownType):
        return None
    return "" if problem is None else f"at {where(_pointer(problem.absolute_path))}: {problem.message}"


def _validator(schema: Any) -> Any:
    """jsonschema's validator, extended by OpenAPI's ``nullable``; it ignores unknown keywords and fetches nothing."""
    known = isinstance(schema, dict) and validators.validator_for(schema, default=None)
    if not known and isinstance(schema, dict):
        schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    text = json.dumps(schema)
    newest = jsonschema.Draft202012Validator
    if '"items": [' in text and '"prefixItems"' not in text:
        newest = jsonschema.Draft201909Validator
    if re.search(r'"exclusiveM\w+": (?:true|false)', text):
        newest = jsonschema.Draft4Validator
    base = known or newest
    own = {name: _or_null(base.VALIDATORS[name]) for name in ("type", "enum", "const") if name in base.VALIDATORS}
    return validators.extend(base, {**own, "pattern": _pattern})(schema, registry=REGISTRY)


def _or_null(check: Any) -> Any:
    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any]:
        return () if instance is None and schema.get("nullable") is True else check(validator, value, instance, schema)

    return checked


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    """Patterns that Python can't read are ignored: the grammar has enforced them, or nothing can."""
    try:
        is_wrong = isinstance(instance, str) and not re.search(pattern, instance)
    except re.error:
        return
    if is_wrong:
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _resolver(schema: Any) -> Any:
    """Resolves references within ``schema`` and to JSON Schema's own schemas."""
    whole: Part = schema if isinstance(schema, dict) else {}
    if not all(isinstance(whole.get(name, ""), str) for name in ("$id", "id")):
        whole = {keyword: value for keyword, value in whole.items() if keyword not in ("$id", "id")}
    resource = specification_with(str(whole.get("$schema")), default=DRAFT202012).create_resource(whole)
    name = whole.get("$id", whole.get("id"))
    return REGISTRY.with_resource(name or "", resource).resolver_with_root(resource)


def where(place: str) -> str:
    """A place, for the user."""
    return "the top level" if place == "#" else place


# ---------------------------------------------------------------- equivalent schemas


def _unevaluated(found: Part) -> None:
    """Unevaluated properties or items are just additional ones, unless another keyword may have evaluated them."""
    if any(keyword in found for keyword in _APPLIED_IN_PLACE):
        return
    for unevaluated, additional in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")):
        if unevaluated in found and "contains" not in found:
            value = found.pop(unevaluated)
            found.setdefault(additional, value)


def _same_pattern(pattern: str, compiles: Callable[[str], bool]) -> str:
    """An equivalent pattern for llguidance, if there is one."""
    patterns, is_exact = forced_patterns(pattern, compiles)
    return patterns[0] if is_exact and len(patterns) == 1 else pattern


def _without_not(found: Part) -> None:
    """Replace ``not`` of types by the other types."""
    wanted = found.get("not")
    if not isinstance(wanted, dict) or set(wanted) != {"type"} or _problem("type", wanted["type"]):
        return
    if "integer" in _types(wanted):
        return
    others = set(_types(found) or _TYPES) - set(_types(wanted))
    if "number" in _types(wanted):
        others.discard("integer")
    if others:
        found["type"] = sorted(others)
        del found["not"]


def _named_keys(found: Part) -> None:
    """Replace ``propertyNames``, if nothing else is said about names, by properties or a pattern."""
    names = found.get("propertyNames")
    if not isinstance(names, dict) or any(keyword in found for keyword in (*_MAPS, "$ref")):
        return
    if any(_problem(keyword, value) for keyword, value in names.items()):
        return
    value = found.get("additionalProperties", True)
    about = {keyword: names[keyword] for keyword in names if keyword in _AS_IT_IS and keyword not in ("type", "format")}
    if "enum" in about or "const" in about:
        keys = [one for one in about.pop("enum", [about.pop("const", None)]) if isinstance(one, str)]
        new: Part = {"properties": dict.fromkeys(keys, value)}
    elif set(about) == {"pattern"}:
        new = {"patternProperties": {about.pop("pattern"): value}}
    elif about and set(about) <= {"minLength", "maxLength"}:
        length = f"{about.pop('minLength', 0)},{about.pop('maxLength', '')}"
        new = {"patternProperties": {f"^[\\s\\S]{{{length}}}$": value}}
    else:
        return
    if not about and all(keyword in ("type", "enum", "const", *_AS_IT_IS) for keyword in names if keyword != "$schema"):
        del found["propertyNames"]
        found |= {**new, "additionalProperties": False}


def _says_nothing(keyword: str, value: Any) -> bool:
    """Whether every answer satisfies it."""
    if keyword == "propertyNames" and isinstance(value, dict):
        return value.get("type") == "string" and not any(one in value for one in (*_AS_IT_IS[:5], *_COUNTS, *_LISTS))
    nothing: dict[str, list[Any]] = {"uniqueItems": [False], "not": [False], "contains": [], "if": []}
    return value in nothing.get(keyword, [True, {}])


# ---------------------------------------------------------------- values of keywords


def _problem(keyword: str, value: Any) -> str:
    """What is wrong with a keyword's ``value``; empty: nothing."""
    if keyword == "type":
        unknown = [one for one in _types({"type": value}) if one not in _TYPES]
        return f"Invalid type: {unknown[0] if unknown else value}" if unknown or not value else ""
    if keyword in _COUNTS:
        is_right = not isinstance(value, bool) and isinstance(value, int | float) and value >= 0 and value % 1 == 0
    elif keyword in _NUMBERS:
        is_right = isinstance(value, int | float) and (not isinstance(value, bool) or keyword.startswith("exclusive"))
    elif keyword in (*_LISTS, "enum", "required"):
        is_right = isinstance(value, list) and (keyword != "required" or all(isinstance(one, str) for one in value))
    elif keyword in _MAPS:
        is_right = isinstance(value, dict)
    else:
        is_right = keyword not in ("pattern", "$ref", "format") or isinstance(value, str)
    return "" if is_right else f"“{keyword}” can't be {json.dumps(value)[:40]}"


def _types(schema: Part) -> list[Any]:
    found = schema.get("type", [])
    return found if isinstance(found, list) else [found]


# ---------------------------------------------------------------- places


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _pointer(path: Iterable[str | int]) -> str:
    return "/".join(("#", *(_escaped(str(one)) for one in path)))


def _shown(reference: str) -> str:
    """The place of a definition, for the user."""
    return reference if reference.startswith("#") else f"“{reference}”"
