"""What the head of an image file says. Nothing of the image is decoded."""

from __future__ import annotations

from app.helper.files.found import RefusedError
from app.helper.files.reading import opened
from app.helper.messages import FileNotRead, ImageLookedAt, LookAtImage
from app.protocol.images import HEAD_BYTES, read_head


def answer(request: LookAtImage) -> ImageLookedAt | FileNotRead:
    """What kind of image a file has and how large it is, or why that isn't known."""
    try:
        with opened(request.path) as file:
            head = read_head(file.read(HEAD_BYTES))
    except RefusedError as refusal:
        return FileNotRead(refusal.reason, refusal.detail)
    except OSError as error:
        return FileNotRead("unreadable", error.strerror or str(error))
    return FileNotRead("image") if head is None else ImageLookedAt(head.kind, head.width, head.height)
