"""Headers of models that haven't been downloaded: their first megabytes, through the same parser as files on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from app.errors import Canceled, KnownError
from app.models.gguf import GgufHeader, ModelFileError, check_loadable, read_header_from
from app.models.gguf_parser import MAX_HEADER_BYTES
from app.models.hub.network import Network
from app.models.hub.refusals import refused
from app.models.hub.repository import RemoteFile, RemoteModel, file_url
from app.models.text import printable

FIRST_PIECE = 256 * 1024
MAX_FETCHED = 2 * MAX_HEADER_BYTES
"""For one model; a split model can have a thousand parts, each with a header."""
LARGEST_PIECE = 1024 * 1024
"""The most that may be fetched unnecessarily; small headers are fetched in smaller pieces."""


def read_remote_header(
    network: Network, model: RemoteModel, is_canceled: Callable[[], bool] = lambda: False, *, any_kind: bool = False
) -> GgufHeader:
    """Read and check a header with range requests: about as many bytes as the header has, and at most twice as many.

    With ``any_kind``, it isn't checked whether llama.cpp can load it as a text model: a head by itself may be none.
    Raises `ModelFileError` for a file that isn't a model, `KnownError` if the network or the hub fails, and `Canceled`
    soon after ``is_canceled()`` returns true.
    """
    files = {file.path: file for file in model.files}
    header = read_header_from(_Remote(network, files, is_canceled), Path(model.files[0].path))
    if not any_kind:
        check_loadable(header)
    return header


@dataclass
class _Remote:
    """The files of one model, as a `Source`."""

    network: Network
    files: Mapping[str, RemoteFile]
    """By path."""
    is_canceled: Callable[[], bool]
    fetched: int = 0

    @contextmanager
    def opened(self, path: Path) -> Iterator[tuple[_Pieces, int]]:
        file = self.files[path.as_posix()]
        if self.fetched > MAX_FETCHED:
            raise ModelFileError(path, "is damaged: the headers of its parts are too large.")
        pieces = _Pieces(self.network, file, self.is_canceled)
        yield pieces, file.size
        self.fetched += pieces.position

    def has(self, path: Path) -> bool:
        return path.as_posix() in self.files


@dataclass
class _Pieces:
    """A file from its start, fetched piece by piece."""

    network: Network
    file: RemoteFile
    is_canceled: Callable[[], bool]
    position: int = 0
    """Bytes that were fetched."""

    def read(self, size: int) -> bytes:
        # No more than there is already, so that at most twice the header is fetched.
        piece = min(max(FIRST_PIECE, self.position), LARGEST_PIECE)
        data = self._fetch(min(size, piece, self.file.size - self.position))
        self.position += len(data)
        return data

    def _fetch(self, size: int) -> bytes:
        if size <= 0:
            return b""
        endpoint = self.network.endpoint
        headers = {"Range": f"bytes={self.position}-{self.position + size - 1}"}
        url = file_url(endpoint, self.file)
        with self.network.stream(url, purpose="model header", headers=headers) as response:
            self._check(response, endpoint)
            data = b""
            for chunk in response.iter_raw():
                if self.is_canceled():
                    raise Canceled
                data += chunk
                if len(data) > size:  # otherwise read to the end, so that the connection can be used for the next piece
                    break
        return data[:size]

    def _check(self, response: httpx2.Response, endpoint: str) -> None:
        if self.is_canceled():
            raise Canceled
        if response.status_code == 416:
            raise self._other_size()
        if response.status_code >= 400:
            raise refused(response, endpoint, self.file.repository)
        if response.status_code != 206:
            host = printable(response.url.host)
            raise KnownError(f"{host} doesn't send parts of files, so models can't be checked before the download.")
        start, _, total = response.headers.get("Content-Range", "").partition("/")
        if not start.startswith(f"bytes {self.position}-") or total != str(self.file.size):
            raise self._other_size()

    def _other_size(self) -> ModelFileError:
        return ModelFileError(Path(self.file.path), "isn't as large as its page says. Look the repository up again.")
