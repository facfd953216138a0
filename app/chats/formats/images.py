"""Images in other apps' JSON, which has them as data URLs. No other address is ever followed."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from app.chats.formats.records import AttachmentRecord
from app.chats.formats.values import mapping, text
from app.protocol.images import HEAD_BYTES, problem_of, read_head

_DATA = re.compile(r"data:image/[\w.+-]{1,20};base64,")
_UNNAMED = "Image"


def image_from(url: object, name: str = "") -> AttachmentRecord | None:
    """The image in a data URL; ``None`` if it isn't one, or can't be used."""
    begins = _DATA.match(written := text(url))
    if begins is None:
        return None
    try:
        data = base64.b64decode(written[begins.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
    head = read_head(data[:HEAD_BYTES])
    if head is None or problem_of(head, name, len(data)):
        return None
    return AttachmentRecord(
        kind="image",
        name=name or f"{_UNNAMED}.{head.kind}",
        data=data,
        media_type=f"image/{head.kind}",
        width=head.width,
        height=head.height,
    )


def image_of(part: dict[str, Any]) -> AttachmentRecord | None:
    """The image of a part of a message; in the newer form, its address isn't in an object."""
    address = part.get("image_url")
    return image_from(mapping(address).get("url", address))


def data_url(image: AttachmentRecord) -> str:
    """An image as a data URL."""
    return f"data:{image.media_type or 'image/png'};base64,{base64.b64encode(image.data).decode()}"
