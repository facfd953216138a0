"""The download of one item for one command, and what is said meanwhile."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from app import paths
from app.commands.output import show_progress
from app.errors import KnownError
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.downloads.wording import figures
from app.models.hub.errors import NoAccessError
from app.models.hub.network import Network
from app.models.library.library import own_folder
from app.models.origins import FILE_NAME as ORIGINS_NAME
from app.models.origins import Origins
from app.models.text import visible
from app.settings import Settings

_ACTIVE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)
_REFRESH_SECONDS = 0.25


def fetch(network: Network, item: Item, values: Settings) -> tuple[Path, Path | None]:
    """Download ``item`` into the models folder; returns where its target and draft are.

    The queue is the command's own: nothing the window left in its queue goes on, and the window may be open. A file
    that is downloaded there at this moment is refused. Raises `KnownError`.
    """
    changed = threading.Event()
    with tempfile.TemporaryDirectory(prefix="slipstream-", ignore_cleanup_errors=True) as folder:
        queue = DownloadQueue(
            network,
            Path(folder),
            own_folder(values.models_folder),
            parallel=values.parallel_downloads,
            limit=values.download_limit,
            origins=Origins(paths.data_dir() / ORIGINS_NAME),
            on_change=lambda _: changed.set(),
        )
        try:
            queue.add(item)
            progress = _wait(queue, changed)
        except KeyboardInterrupt:
            say("Stopped. What has arrived is kept: the same command goes on from there.")
            raise
        finally:
            queue.close()
            show_progress("")
    if progress.state is not ItemState.DONE:
        raise _failure(progress)
    return queue.paths(item.id)


def say(text: str) -> None:
    """A line that stays, beside the one of the progress."""
    show_progress("")
    print(f"slipstream: {visible(text)}", file=sys.stderr, flush=True)


def _wait(queue: DownloadQueue, changed: threading.Event) -> ItemProgress:
    """Show how far the queue's only item is until it does not go on by itself."""
    told = ""
    while True:
        changed.clear()
        (progress,) = queue.progress()
        if progress.state not in _ACTIVE:
            return progress
        if progress.message not in ("", told):
            told = progress.message
            say(f"{told} It is tried again." if progress.state is ItemState.WAITING else told)
        show_progress(figures(progress))
        changed.wait(_REFRESH_SECONDS)


def _failure(progress: ItemProgress) -> KnownError:
    message = progress.message.replace("press Resume", "run the same command again")  # there is no such button here
    return NoAccessError(message, progress.page) if progress.page else KnownError(message)
