"""Jupyter notebooks (.ipynb): the source and the output of their cells."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, BinaryIO

from app.helper.files import html_text
from app.helper.files.found import FileText, RefusedError, counted, joined

_MOST_OUTPUT = 10_000
"""Characters of one output; training logs have millions."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_TEXTS = ("text/markdown", "text/latex", "text/plain")


def text_of(file: BinaryIO, most: int) -> FileText:
    """The cells in order, until they exceed ``most`` characters. Raises `RefusedError`."""
    try:
        notebook = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise RefusedError("damaged") from None
    if not isinstance(notebook, dict):
        raise RefusedError("damaged")
    sheets = [notebook, *_dicts(notebook.get("worksheets"))]  # format 3 has one
    (about,) = _dicts([notebook.get("metadata")]) or [{}]
    infos = _dicts([about.get("language_info"), about.get("kernelspec")])
    language = next((str(one[key]) for one in infos for key in ("language", "name") if one.get(key)), "python")
    left_out = Counter[str]()
    cells = (cell for sheet in sheets for cell in _dicts(sheet.get("cells")))
    text = joined((_cell(cell, language, left_out) for cell in cells), most)
    return FileText(text, counted(left_out))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A string, or a list of lines, as a string."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _cell(cell: dict[str, Any], language: str, left_out: Counter[str]) -> str:
    source = _text(cell.get("source", cell.get("input"))).strip("\n")
    attached = cell.get("attachments")
    left_out["picture"] += len(attached) if isinstance(attached, dict) else 0
    if cell.get("cell_type") == "heading":
        level = cell.get("level")
        return f"{'#' * level if isinstance(level, int) and 0 < level < 7 else '#'} {source}"
    if cell.get("cell_type") != "code":
        return source
    outputs = [_output(one, left_out) for one in _dicts(cell.get("outputs"))]
    found = [_fenced(source, language)] if source.strip() else []
    return "\n\n".join(found + [_fenced(text, "") for text in outputs if text.strip()])


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _output(output: dict[str, Any], left_out: Counter[str]) -> str:
    data = output.get("data")
    data = data if isinstance(data, dict) else output
    left_out["picture"] += any(str(kind).startswith("image/") or kind in ("png", "jpeg", "svg") for kind in data)
    raw = next((data[kind] for kind in _TEXTS if kind in data), output.get("text", output.get("traceback")))
    if output.get("output_type") in ("error", "pyerr") and isinstance(raw, list):
        raw = "\n".join(map(str, raw))
    if raw is None and "text/html" in data:
        raw = html_text.text_of(_text(data["text/html"]))
    text = _ESCAPES.sub("", _text(raw))
    if len(text) > _MOST_OUTPUT:
        left_out["long output cut"] += 1
        text = f"{text[: _MOST_OUTPUT // 2]}\n…\n{text[-_MOST_OUTPUT // 2 :]}"
    return text
