"""What is said about downloads."""

from __future__ import annotations

from typing import Any

import pytest

from app import words
from app.models.downloads.item import Item, ItemProgress, ItemState, figures, summary
from app.models.hub.repository import RemoteFile

FILE = RemoteFile(repository="a/b", commit="0" * 40, path="m.gguf", size=5 * 10**9, sha256="0" * 64)
ITEM = Item(id="1", title="Model", target=(FILE,))


def progress(state: ItemState, **values: Any) -> ItemProgress:
    return ItemProgress(item=ITEM, state=state, **values)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (progress(ItemState.RUNNING, done=12 * 10**8), "1.2 GB of 5 GB"),
        (progress(ItemState.RUNNING, done=1, speed=34e6, seconds_left=130), "1 byte of 5 GB · 34 MB/s · 2 min left"),
        (progress(ItemState.WAITING, attempt=1, retry_in=4.2), "0 bytes of 5 GB · retrying in 4 s (attempt 2)"),
        (progress(ItemState.WAITING, attempt=3), "0 bytes of 5 GB · retrying (attempt 4)"),
        (progress(ItemState.QUEUED), "0 bytes of 5 GB · waiting"),
        (progress(ItemState.CANCELED, done=10**9), "1 GB of 5 GB · canceled; downloaded parts are kept"),
        (progress(ItemState.DONE, done=5 * 10**9), "5 GB · Complete · checksum verified"),
    ],
)
def test_how_far_one_is(shown: ItemProgress, text: str) -> None:
    assert figures(shown).replace("\u00a0", " ") == text


def test_all_together() -> None:
    items = [
        progress(ItemState.RUNNING, speed=30e6),
        progress(ItemState.WAITING),
        progress(ItemState.PAUSED),
        progress(ItemState.DONE),
    ]
    assert summary(items) == "2 running, 1 paused, 1 done · 30 MB/s"
    assert summary([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3540, "59 min"),
        (3600, "1 h"),
        (4800, "1 h 20 min"),
        (10 * 3600 + 900, "10 h"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert words.coarse(seconds).replace("\u00a0", " ") == text
