"""``slipstream models get``: download a model from Hugging Face, alone or with a draft that fits."""

from __future__ import annotations

import argparse

from app.errors import KnownError
from app.models.hub.errors import NoAccessError

_TOKEN = (
    "The access token comes from the system's keyring, where the Slipstream window stores it, or from the variable "
    "HF_TOKEN. It is sent to a mirror only if the settings allow that."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "To resume an interrupted download, run the same command again. " + _TOKEN
    parser.add_argument(
        "wanted",
        metavar="REPO[:FILE]",
        help="a repository such as Qwen/Qwen3-8B-GGUF, followed by a quantization or file name if it has several "
        "models; or a recommended model such as qwen3.5-9b. An MTP head in a file of its own comes with it",
    )
    parser.add_argument("--with-draft", action="store_true", help="also download the best draft that fits")
    parser.add_argument(
        "--with-images",
        action="store_true",
        help="also download the file with which the model sees images (mmproj), if its repository has one",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from app.commands.models import fetching  # only now, because it imports the network

    try:
        return fetching.run(options)
    except NoAccessError as error:
        raise KnownError(f"{error} Its page: {error.page}\n{_TOKEN}") from None
