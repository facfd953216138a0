"""Parts of messages in other apps' JSON, and images, which are data URLs there. No other address is ever followed."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from app.chats.formats.records import AttachmentRecord, LeftOut
from app.chats.formats.values import items, mapping, text
from app.protocol.images import HEAD_BYTES, problem_of, read_head

_DATA = re.compile(r"data:image/[\w.+-]{1,20};base64,")
_UNNAMED = "Image"
_KINDS = {"image": "images", "audio": "recordings", "video": "recordings", "tool": "tools", "function": "tools"}


def reason_for(kind: object) -> str:
    """As what a part of this kind counts that isn't taken, by what its name contains."""
    name = text(kind).lower()
    return next((reason for part_of, reason in _KINDS.items() if part_of in name), "files")


def parts_of(content: object, left_out: LeftOut) -> tuple[str, list[AttachmentRecord]]:
    """The text and the images of a content that is a text or a list of parts."""
    written, images = [text(content)], list[AttachmentRecord]()
    for part in map(mapping, items(content)):
        if text(part.get("type")).endswith(("text", "refusal")):  # input_text, summary_text …
            written.append(text(part.get("text")) or text(part.get("refusal")))
        elif (image := image_of(part)) is not None:
            images.append(image)
        else:
            left_out[reason_for(part.get("type"))] += 1
    return "\n\n".join(filter(None, written)), images


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
