"""``slipstream models get``: download a model from Hugging Face, alone or with a draft that fits."""

from __future__ import annotations

import argparse

from app.commands.options import command, option
from app.models.hub.errors import NoAccessError
from app.system import KnownError

_TOKEN = (
    "The access token comes from the system's keyring, where the Slipstream window stores it, or from the variable "
    "HF_TOKEN. It is sent to a mirror only if the settings allow that."
)


@command(
    "get",
    "download a model from Hugging Face, with a matching draft if you like",
    option(
        "wanted",
        metavar="REPO[:FILE]",
        help="a repository such as Qwen/Qwen3-8B-GGUF, followed by a quantization or file name if it has several "
        "models; or a recommended model such as qwen3.5-9b. An MTP head in a file of its own comes with it",
    ),
    option("--with-draft", action="store_true", help="also download the best draft that fits"),
    option(
        "--with-images",
        action="store_true",
        help="also download the file with which the model sees images (mmproj), if its repository has one",
    ),
    epilog=f"To resume an interrupted download, run the same command again. {_TOKEN}",
)
def get_model(options: argparse.Namespace) -> int:
    from app.commands.models import fetching  # only now, because it imports the network

    try:
        return fetching.run(options)
    except NoAccessError as error:
        raise KnownError(f"{error} Its page: {error.page}\n{_TOKEN}") from None
