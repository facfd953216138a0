"""``--attach``: files that go with a prompt."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from app.chats.attachments import Content
from app.chats.formats.values import file_text
from app.chats.transfer import content_of
from app.helper import READING_SECONDS, Helper, HelperError
from app.helper.messages import ImageLookedAt, LookAtImage
from app.models.names import printable, visible
from app.system import KnownError


def add_attach_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="a file to put before the prompt: text, code, PDF, web page, Office file, book, notebook; may be repeated",
    )


def with_attached(prompt: str, paths: Sequence[str]) -> str:
    """The prompt behind the texts of these files. Raises `KnownError`."""
    if not paths:
        return prompt
    helper = Helper(READING_SECONDS)
    try:
        found = [_text_of(path, printable(Path(path).name or path), helper) for path in paths]
    finally:
        helper.stop()
    return "\n\n".join([*(file_text(one.name, one.data.decode()) for one in found), prompt])


def _text_of(path: str, name: str, helper: Helper) -> Content:
    """Raises `KnownError`."""
    with contextlib.suppress(HelperError):
        if isinstance(helper.look_at_image(LookAtImage(path)), ImageLookedAt):
            raise KnownError(f"{name} is a picture. Use --image for it.")
    content = content_of(path, name, helper)
    if content.note:
        print(f"{name}: {visible(content.note)}", file=sys.stderr)
    return content
