"""``slipstream inspect``: what a GGUF file is, and whether two fit as a pair."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from app.models.text import visible, visible_json


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("draft", type=Path, nargs="?", metavar="DRAFT", help="say whether this fits FILE as its draft")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    return show(options.file, options.draft, as_json=options.json)


def show(file: Path, draft_file: Path | None, *, as_json: bool) -> int:
    """Print what is known of the files; returns the exit status. Raises `KnownError`."""
    from app.models import inspect, pairing
    from app.models.gguf import read_header

    header = read_header(file)
    if draft_file is None:
        print(as_text(inspect.describe(header)) if as_json else visible(inspect.readable(header)))
        return 0
    draft = read_header(draft_file)
    verdict = pairing.compare(header, draft)
    if as_json:
        print(as_text(inspect.describe_pair(header, draft, verdict)))
    else:
        print(visible(inspect.readable_pair(header, draft, verdict)))
    return 0 if verdict.fits else 1


def as_text(value: object) -> str:
    """JSON for people and programs."""
    return visible_json(json.dumps(value, ensure_ascii=False, indent=2))
