"""Images in a request: only those that it brings along. They are files for the engine, until the answer has ended."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import re
import tempfile
from pathlib import Path
from types import TracebackType

from app.protocol.commands import Image
from app.protocol.events import PairLoaded
from app.protocol.images import HEAD_BYTES, ImageHead, is_bomb, problem_of, read_head
from app.server.errors import invalid, not_supported

_DATA = re.compile(r"data:[a-zA-Z0-9.+/-]*;base64,")
MOST_IMAGES = 64


class RequestImages:
    """The images of one request, in a private folder that is erased at the end of the ``with``."""

    def __init__(self, pair: PairLoaded) -> None:
        self._can_see = pair.projector is not None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._found: list[tuple[bytes, ImageHead]] = []

    def __enter__(self) -> RequestImages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._found = []
        if self._folder:
            with contextlib.suppress(OSError):  # Windows doesn't erase what is still open
                self._folder.cleanup()

    def from_url(self, url: str) -> Image:
        """The image in a ``data:`` URL. Nothing else is read, from nowhere. Raises `ApiError`."""
        match = _DATA.match(url)
        if not match:
            raise invalid("An image has to be in the request itself, as a data: URL with base64. Nothing is fetched.")
        return self.from_base64(url[match.end() :])

    def from_base64(self, text: str) -> Image:
        """Raises `ApiError`."""
        if not self._can_see:
            raise not_supported("The loaded model can't see images. Start slipstream serve with --mmproj.")
        if len(self._found) >= MOST_IMAGES:
            raise invalid(f"A request may have {MOST_IMAGES} images.")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise invalid("An image isn't valid base64.") from None
        name = f"Image {len(self._found) + 1}"
        head = read_head(data[:HEAD_BYTES])
        if problem := problem_of(head, name, len(data)):
            raise invalid(problem)
        assert head is not None
        self._found.append((data, head))
        return Image(hashlib.sha256(data).hexdigest(), str(self._path(len(self._found))))

    async def write(self) -> None:
        """Let the engine read them. Raises `ApiError` for one that would take too much memory."""
        if self._found:
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        for number, (data, head) in enumerate(self._found, 1):
            if is_bomb(data, head):
                raise invalid(f"Image {number} is larger than its size in pixels allows.")
            self._path(number).write_bytes(data)
        self._found = []

    def _path(self, number: int) -> Path:
        """Of an image, in a folder that only this user can read."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="slipstream-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / f"Image {number}"
