"""What commands print: results, a progress line, and wrong usage."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from app.words import visible, visible_json


def show_result(options: argparse.Namespace, described: object, lines: str | Sequence[str]) -> None:
    """Print ``described`` as JSON if ``--json`` is given, otherwise ``lines``."""
    if options.json:
        print(visible_json(json.dumps(described, ensure_ascii=False, indent=2)))
    else:
        print(visible(lines if isinstance(lines, str) else "\n".join(lines)))


def show_progress(text: str) -> None:
    """One line on a terminal, which is overwritten; nothing if stderr is a file or a pipe."""
    if sys.stderr.isatty():
        text = visible(text)[: shutil.get_terminal_size().columns - 1]  # a wrapped line can't be overwritten
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def tell(*sentences: str | None) -> None:
    """Print sentences for people to standard error: programs read standard output."""
    for sentence in filter(None, sentences):
        print(f"slipstream: {visible(sentence)}", file=sys.stderr, flush=True)


def wrong_usage(message: str) -> NoReturn:
    """Exit with the status for a wrong command line."""
    tell(message)
    raise SystemExit(2)
