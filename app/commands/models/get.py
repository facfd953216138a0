"""``slipstream models get``: download a model from Hugging Face, alone or with a draft that fits."""

from __future__ import annotations

import argparse

from app.errors import KnownError
from app.models.hub.errors import NoAccessError

_TOKEN = (
    "The token comes from the system's keyring, where Slipstream's window puts it, or from the variable HF_TOKEN; "
    "a mirror gets it only if the settings allow that."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.epilog = "What was stopped goes on with the same command. " + _TOKEN
    parser.add_argument(
        "wanted",
        metavar="REPO[:FILE]",
        help="a repository, as Qwen/Qwen3-8B-GGUF, with a quantization or a file's name where it has several models; "
        "or a recommended pair, as qwen3-8b",
    )
    parser.add_argument("--with-draft", action="store_true", help="find the best draft that fits and get it too")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    from app.commands.models import fetching  # only now: it brings the network in

    try:
        return fetching.run(options)
    except NoAccessError as error:
        raise KnownError(f"{error} Its page: {error.page}\n{_TOKEN}") from None
