"""Models → Downloads with a real queue and a hub that misbehaves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from PySide6.QtWidgets import QLineEdit, QProgressBar

from app import system
from app.models.downloads.item import Item
from app.settings import Pair
from app.ui.settings.network_page import TokenDialog
from tests.support.hub_faults import Fault
from tests.support.library_parts import small_model
from tests.ui.models.windows import Pages, Windows, button, buttons, open_dialog, question, texts

NAME, PATH, SIZE = "owner/some-GGUF", "some-Q4_0.gguf", 1_000_000
ANOTHER_QUEUE = """
import sys
from pathlib import Path
from app.models.downloads.queue import DownloadQueue
from app.models.hub.network import Network, NetworkSettings
queue = DownloadQueue(Network(NetworkSettings(offline=True)), Path(sys.argv[1]), Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
queue.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real model of a million bytes, most of them behind its end."""
    data = small_model(tmp_path_factory.mktemp("hub") / PATH).read_bytes()
    return data + os.urandom(SIZE - len(data))


@pytest.fixture
def content(windows: Windows, model: bytes) -> bytes:
    """Of the one file on the hub."""
    windows.server.add(NAME, {PATH: model})
    return model


def begun(windows: Windows) -> Item:
    """A download that stands still in the middle."""
    windows.server.faults.add(PATH, Fault(stall_at=300_000))
    item = windows.get((NAME, PATH))
    windows.server.wait_for(lambda: any(request.sent >= 300_000 for request in windows.server.bodies()))
    windows.says("KB of 1 MB")
    return item


def test_paused_resumed_done_and_opened(windows: Windows, content: bytes) -> None:
    tab = windows.window.downloads
    begun(windows)
    assert windows.window.tabs.currentWidget() is tab
    assert windows.window.tabs.tabText(3) == "Downloads (1)"
    assert texts(tab)[0].startswith("1 running")
    assert buttons(tab) == ["Pause", "Cancel"]
    bar = tab.findChild(QProgressBar)
    assert isinstance(bar, QProgressBar)
    windows.until(lambda: bar.value() == 300)
    assert bar.accessibleName() == "Download progress: A model"
    button(tab, "Pause: A model").click()
    windows.says("· paused")
    assert windows.window.tabs.tabText(3) == "Downloads"
    assert buttons(tab) == ["Resume", "Cancel", "Discard"]
    button(tab, "Resume: A model").click()
    assert windows.notice("downloaded").startswith("A model has been downloaded")
    path = windows.models / NAME / PATH
    assert path.read_bytes() == content
    assert windows.notice_list.notices()["downloaded"].values == (Pair(str(path)),)
    windows.says("1 MB · Complete · checksum verified")
    assert buttons(tab) == ["Open…", "Remove from list"]
    button(tab, "Open…: A model").click()
    assert windows.actions.done == [("open_pair", str(path), "")]
    button(tab, "Remove from list: A model").click()
    assert texts(tab) == [
        "No downloads yet. Get models under Recommended or Search; they appear here and continue after a restart."
    ]
    assert path.exists()


def test_cancel_keeps_what_arrived_and_discard_deletes_it(windows: Windows, content: bytes) -> None:
    tab, part = windows.window.downloads, windows.models / NAME / f"{PATH}.part"
    begun(windows)
    button(tab, "Cancel").click()
    windows.says("canceled; downloaded parts are kept")
    assert part.stat().st_size > 0
    button(tab, "Discard").click()
    box = question(tab)
    assert "Discard A model? The " in box.text()
    button(box, "Cancel").click()
    windows.until(lambda: buttons(tab) == ["Resume", "Discard"])
    assert part.exists()
    button(tab, "Discard").click()
    button(question(tab), "Discard").click()
    windows.until(lambda: not list(windows.models.rglob("*.part*")))
    assert texts(tab)[0].startswith("No downloads yet.")


def test_a_gated_model_shows_its_page_and_takes_a_token(windows: Windows, pages: Pages, model: bytes) -> None:
    tab = windows.window.downloads
    windows.values.token_to_mirror = True
    windows.window.hub.apply_settings()
    windows.server.add(NAME, {PATH: model}, gated="auto")
    windows.get((NAME, PATH))
    said = windows.notice("download")
    message = said.removeprefix("The download of A model stopped. ")
    assert message != said and "gated" in message and message in texts(tab)
    assert buttons(tab) == ["Try again", "Open page", "Enter token…", "Discard"]
    button(tab, "Open page").click()
    assert pages.opened == [f"{windows.server.endpoint}/{NAME}"]
    button(tab, "Enter token…").click()
    dialog = open_dialog(TokenDialog)
    line = dialog.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    line.setText(" hf_good ")
    button(dialog, "Save").click()
    windows.until(lambda: windows.window.hub._connection.tokens.get("127.0.0.1") == "hf_good")
    button(tab, "Try again").click()
    windows.says("Complete · checksum verified")


def test_a_broken_line_is_tried_again_but_not_a_file_that_is_not_what_it_should_be(
    windows: Windows, content: bytes
) -> None:
    windows.server.faults.always(PATH, Fault(cut_at=200_000))
    windows.get((NAME, PATH))
    windows.says("retrying")
    assert buttons(windows.window.downloads) == ["Pause", "Cancel"]
    windows.server.faults.clear()
    windows.server.faults.always(PATH, Fault(content=b"y" * SIZE))
    told = windows.notice("download").removeprefix("The download of A model stopped. ")
    assert told in texts(windows.window.downloads)
    assert button(windows.window.downloads, "Try again: A model").isEnabled()
    assert not (windows.models / NAME / PATH).exists()
    windows.server.add("owner/b", {"b.gguf": b"x"}, gated="auto")
    windows.get(("owner/b", "b.gguf"), title="b")
    windows.says("2 stopped")
    assert "Resume all" not in buttons(windows.window.downloads)


def test_all_are_paused_and_resumed_together(windows: Windows, content: bytes) -> None:
    tab = windows.window.downloads
    windows.server.add("owner/other", {"other.gguf": content[:-1]})
    windows.server.faults.add("other.gguf", Fault(stall_at=100_000))
    begun(windows)
    assert "Pause all" not in buttons(tab)
    windows.get(("owner/other", "other.gguf"), title="Another model")
    windows.server.wait_for(lambda: sum(request.sent >= 100_000 for request in windows.server.bodies()) == 2)
    windows.says("2 running")
    button(tab, "Pause all").click()
    windows.says("2 paused")
    button(tab, "Resume all").click()
    windows.says("2 done")
    assert "Resume all" not in buttons(tab)


def test_a_queue_in_other_hands(closed_windows: Windows) -> None:
    system.data_dir().mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", ANOTHER_QUEUE, str(system.data_dir())]
    sentence = "Another Slipstream window is using the downloads. Use that one, or close it first."
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"ready\n"
        windows = closed_windows.open()
        windows.window.show_downloads()
        assert sentence in texts(windows.window.downloads)
        windows.server.add(NAME, {PATH: b"x"})
        windows.get((NAME, PATH))  # is not done, and the sentence is in front
        assert windows.window.tabs.currentWidget() is windows.window.downloads
        other.stdin.close()
        assert other.wait() == 0
    windows.window.show_downloads()
    assert sentence not in texts(windows.window.downloads)
    assert windows.window.downloads.progress() == []


def test_it_goes_on_after_a_restart(windows: Windows, content: bytes) -> None:
    begun(windows)
    windows.close()
    windows.open()
    windows.until((windows.models / NAME / PATH).exists)
    windows.window.show_downloads()
    windows.says("Complete · checksum verified")
    assert (windows.models / NAME / PATH).read_bytes() == content
    assert windows.server.bodies()[-1].start > 0  # what had arrived was not fetched again
