"""What other programs send, without what is personal and without their texts: for `tests/data/clients`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.recorder import Exchange

_KEPT = 30
"""Longer texts are replaced."""
_FILLER = "Here is a text that somebody else has written. "
_LONGEST = 48
_OURS = re.compile(r"capital of Italy|And of France|Count to a thousand|note\.txt|harbor|yes no")
_PATH = re.compile(r"/(?:tmp|root|home|work|usr)/[\w./-]*?(?=/?(?:note\.txt|\W*$|[\s\"'`<]))")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,}")
_DATE = re.compile(r"20\d\d-\d\d-\d\d")
_NEVER = {"enum", "required", "type", "role", "name", "pattern", "format", "$schema", "const"}


def write_bodies(name: str, exchanges: Sequence[Exchange], folder: Path) -> None:
    """One file for each request with a body, numbered."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate((one for one in exchanges if one.body), 1):
        found = {"path": one.path, "body": Anonymous().of(one.body)}
        text = json.dumps(found, ensure_ascii=False) + "\n"
        (folder / f"{name}-{number}.json").write_text(text, "utf-8")


class Anonymous:
    """Replaces ids by numbers, the same by the same, within one body."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def of(self, value: Any, key: str = "") -> Any:
        """``value`` with texts of others replaced by filler; structure, names, and types stay."""
        if isinstance(value, dict):
            return {name: self.of(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.of(one, key) for one in value]
        return self._text(value, key) if isinstance(value, str) else value

    def _text(self, text: str, key: str) -> str:
        text = _ID.sub(self._id, _DATE.sub("2026-01-02", text))
        if key == "arguments" or key in _NEVER or key.endswith("id"):
            return _PATH.sub("/home/someone/project", text)
        if text.startswith("x-anthropic-billing-header:"):
            return text
        tags = re.match(r"\s*<([\w-]+)>", text)
        is_ours = len(text) < 200 and _OURS.search(text)
        if key in ("description", "title") or (len(text) > _KEPT and not is_ours):
            filler = "".join(islice(cycle(_FILLER), min(len(text), _LONGEST))).strip()
            return f"<{tags[1]}>\n{filler}\n</{tags[1]}>" if tags else filler
        return _PATH.sub("/home/someone/project", text)

    def _id(self, found: re.Match[str]) -> str:
        number = self._ids.setdefault(found[0].replace("-", ""), str(len(self._ids) + 1))
        return re.sub(r"[0-9a-f]", "0", found[0])[: -len(number)] + number
