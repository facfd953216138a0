"""``slipstream models search``: repositories with GGUF models on Hugging Face."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

import msgspec

from app.commands.models import choosing
from app.commands.options import command, option, whole
from app.commands.output import show_result
from app.models.hub.repository import MAX_RESULTS, SearchResult, Sort
from app.models.names import count_text, printable

_LIMIT = 30
_TITLES = ("repository", "downloads", "likes", "changed", "gated", "license")
_SIDES = "<>><<<"
"""Right-aligned columns."""
_GATED = {"no": "", "automatic": "gated", "manual": "gated, approved manually"}


@command(
    "search",
    "search Hugging Face for models",
    option("words", nargs="+", metavar="WORD", help="words in the repository's name"),
    option("--sort", choices=get_args(Sort), default="trending", help="default: trending"),
    option(
        "--limit",
        type=whole(1, MAX_RESULTS),
        default=_LIMIT,
        metavar="N",
        help=f"maximum number of results (default {_LIMIT})",
    ),
    epilog='Downloads are from the last 30 days. To download a model, use "slipstream models get REPOSITORY".',
)
def search_models(options: argparse.Namespace) -> int:
    from app.models.hub.api import HubConnection, network_settings

    words = " ".join(options.words)
    hub = HubConnection(network_settings(choosing.settings())).hub
    results = hub.search(words, options.sort, options.limit)
    table = _table(results) if results else f'No repository has "{printable(words)}" in its name.'
    show_result(options, {"repositories": msgspec.to_builtins(results)}, table)
    return 0


def _table(results: Sequence[SearchResult]) -> list[str]:
    rows = [_TITLES, *map(_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, _SIDES, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in cells]


def _row(found: SearchResult) -> tuple[str, ...]:
    return (
        printable(found.id, 200),
        count_text(found.downloads),
        count_text(found.likes),
        printable(found.modified[:10]),
        _GATED[found.gated],
        printable(found.license),
    )
