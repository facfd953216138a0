"""Images of messages in the window: read through the helper, and shown small."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QSize, Qt, QUrl
from PySide6.QtGui import QAction, QImage
from pytestqt.qtbot import QtBot

from app.chats.model import Attachment, StoredMessage
from app.helper import Helper
from app.protocol.images import MOST_PIXELS, ImageHead, read_head
from app.system import KnownError
from app.ui.chat import images
from app.ui.chat.attachments import SUBJECT, Thumbnails
from app.ui.chat.chips import Chip, ImagePreview
from app.ui.chat.images import decoded, image_file
from app.ui.chat.messages import UserMessage
from app.ui.chat.transcript import Transcript
from tests.helper.files_to_read import pdf
from tests.protocol.test_images import encoded
from tests.support.vision_models import make_image
from tests.ui.chat.stored import actions_of
from tests.ui.chat.test_attachments import Desk, desk, drag, drop, mime

__all__ = ["desk"]


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    helper = Helper(20.0)
    yield helper
    helper.stop()


def attached(path: Path) -> Attachment:
    image = make_image(path, 160, 96)
    return Attachment(image.sha256, "image", path.name, path.stat().st_size, "image/png", 160, 96, path=image.path)


def test_webp_becomes_png(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    path.write_bytes(encoded("webp"))
    content = image_file(path, helper)
    assert content is not None
    assert read_head(content.data) == ImageHead("png", 123, 45) and content.media_type == "image/png"


def test_files_that_are_no_images(helper: Helper, tmp_path: Path) -> None:
    for name, data in (("a.txt", b"text"), ("b.png", encoded("png")[:20]), ("missing", None)):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        assert image_file(path, helper) is None
    damaged = tmp_path / "a.webp"
    damaged.write_bytes(encoded("webp")[:30])
    with pytest.raises(KnownError, match="damaged"):
        image_file(damaged, helper)


def test_what_is_decoded_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded("png", 400, 100)
    assert decoded(data, QSize(100, 100)).size() == QSize(100, 25)
    assert decoded(data).size() == QSize(400, 100)
    assert decoded(data[:100]).isNull() and decoded(b"").isNull()
    monkeypatch.setattr(images, "MOST_PIXELS", 39_999)
    assert decoded(data).isNull() and MOST_PIXELS > 39_999


def test_a_message_shows_its_images(qtbot: QtBot, transcript: Transcript, tmp_path: Path) -> None:
    thumbnails = Thumbnails(transcript)
    actions_of(transcript).answers = {"load_thumbnail": thumbnails.load}
    present = attached(tmp_path / "a.png")
    gone = Attachment(hashlib.sha256(b"").hexdigest(), "image", "b.png", 9, is_missing=True)
    seeing = StoredMessage("m", "c", None, "user", "Hello", "complete", 0.0, attachments=(present, gone))
    transcript.add_all([seeing])

    def chips() -> list[Chip]:
        messages = [one.widget for one in transcript.column.entries if isinstance(one.widget, UserMessage)]
        return messages[0].chips.chips if messages and messages[0].chips else []

    qtbot.waitUntil(lambda: len(chips()) == 2)
    first, second = chips()
    assert first.button.iconSize() == QSize(160, 96)

    def is_shown() -> bool:
        pixel = first.button.icon().pixmap(first.button.iconSize()).toImage().pixelColor(50, 50)
        return pixel.alpha() == 255

    qtbot.waitUntil(is_shown)
    assert second.button.iconSize() != QSize(160, 96) and "missing" in second.text()
    thumbnails.close()


def names(desk: Desk) -> list[str]:
    return [chip.name for chip in desk.composer.attachments.chips.chips]


def test_a_dropped_image_goes_with_the_message(desk: Desk, tmp_path: Path) -> None:
    image = make_image(tmp_path / "a.png", 160, 96)
    drop(desk.area, mime(image.path))
    desk.qtbot.waitUntil(lambda: len(desk.model.unsent.attachments) == 1)
    (kept,) = desk.model.unsent.attachments
    assert (kept.kind, kept.sha256, kept.width, kept.height) == ("image", image.sha256, 160, 96)
    (chip,) = desk.composer.attachments.chips.chips
    assert chip.name == "a.png" and chip.button.iconSize() == QSize(66, 40)
    chip.button.click()
    (preview,) = desk.composer.window().findChildren(ImagePreview)
    desk.qtbot.waitUntil(lambda: preview.picture.pixmap().size() == QSize(160, 96))
    preview.close()
    desk.load()
    desk.composer.set_text("What is this?")
    desk.composer.button.click()
    desk.qtbot.waitUntil(lambda: bool(desk.model.messages))
    assert desk.model.messages[0].attachments == (kept,) and not desk.model.unsent.attachments


def test_a_pasted_image_is_attached(desk: Desk) -> None:
    data = QMimeData()
    image = QImage(30, 20, QImage.Format.Format_RGB32)
    image.fill(0x336699)
    data.setImageData(image)
    assert desk.composer.editor.canInsertFromMimeData(data)
    desk.composer.editor.insertFromMimeData(data)
    desk.qtbot.waitUntil(lambda: names(desk) == ["Pasted image.png"] and bool(desk.model.unsent.attachments))
    data.setText("And words.")
    desk.composer.editor.insertFromMimeData(data)
    assert desk.composer.text() == "And words." and len(desk.model.unsent.attachments) == 1


def from_browser(*, image: int | None = None, html: str = "", address: str = "https://example.org/a?b=1") -> QMimeData:
    """A picture as browsers pass it on: some have no more than its address."""
    data = QMimeData()
    data.setUrls([QUrl(address)])
    if html:
        data.setHtml(html)
    if image is not None:
        picture = QImage(30, 20, QImage.Format.Format_RGB32)
        picture.fill(image)
        data.setImageData(picture)
    return data


def test_a_picture_that_is_dragged_from_a_browser_is_attached(desk: Desk, tmp_path: Path) -> None:
    written = base64.b64encode(Path(make_image(tmp_path / "a.png").path).read_bytes()).decode()
    inside = from_browser(html=f'<meta charset="utf-8"><a href="x"><img src="data:image/png;base64,{written}"></a>')
    for count, data in enumerate((from_browser(image=1), from_browser(image=2, html="<img src='x'>"), inside), 1):
        event = drop(desk.area, data)
        assert event.dropAction() is Qt.DropAction.CopyAction
        desk.qtbot.waitUntil(lambda count=count: len(desk.model.unsent.attachments) == count)  # type: ignore[misc]
    assert drag(desk.composer.editor.viewport(), from_browser(image=3))  # the area around it takes it
    desk.composer.editor.insertFromMimeData(from_browser(image=3))
    desk.qtbot.waitUntil(lambda: len(desk.model.unsent.attachments) == 4)
    assert desk.composer.text() == ""


def test_a_picture_of_which_only_the_address_comes_is_not_fetched(desk: Desk) -> None:
    addresses = (
        from_browser(html='<img src="https://example.org/a">'),
        from_browser(html="<img src='data:image/png;base64,AAAA'>"),
        from_browser(address="https://example.org/A.PNG"),
    )
    for data in addresses:
        drop(desk.area, data)
        assert "only the address of this picture" in desk.wait_for_notice()
        desk.notice_list.remove(SUBJECT)
    link = from_browser(html='<a href="https://example.org/a">A page</a>')
    assert not drag(desk.area, link)
    desk.composer.editor.insertFromMimeData(from_browser(address="https://example.org/a.png"))
    assert desk.composer.text() == "https://example.org/a.png"
    assert not desk.model.unsent.attachments


def test_text_goes_before_the_picture_that_word_processors_make_of_it(desk: Desk) -> None:
    copied = from_browser(image=1, html="<p>Two <b>words</b></p>")
    copied.setText("Two words")
    desk.composer.editor.insertFromMimeData(copied)
    assert (desk.composer.text(), list(desk.model.unsent.attachments)) == ("Two words", [])


def with_more_data(png: bytes) -> bytes:
    """The image with data for far more rows than it has."""
    body = zlib.compress(bytes(4_000_000))
    chunk = struct.pack(">I", len(body)) + b"IDAT" + body + struct.pack(">I", zlib.crc32(b"IDAT" + body))
    start = png.index(b"IDAT") - 4
    return png[:start] + chunk + png[-12:]


@pytest.mark.parametrize("content", [encoded("png", 400, 100)[:80], with_more_data(encoded("png"))])
def test_a_damaged_image_is_refused_at_the_drop(desk: Desk, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    drop(desk.area, mime(str(tmp_path / "a.png")))
    assert desk.wait_for_notice().startswith("a.png is damaged.")
    assert not desk.model.unsent.attachments


def menu_of(desk: Desk, place: int) -> dict[str, QAction]:
    chip = desk.composer.attachments.chips.chips[place]
    return {action.text(): action for action in chip.more.menu().actions()} if chip.more else {}


def test_the_pages_of_a_pdf_file_instead_of_its_text(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tea = desk.file("tea.pdf", pdf(["Green tea", "Black tea"]))
    drop(desk.area, mime(tea, desk.file("b.txt")))
    desk.qtbot.waitUntil(lambda: len(names(desk)) == 2 and not desk.model.unsent.reading)
    place = names(desk).index("tea.pdf")
    assert not menu_of(desk, place)
    monkeypatch.setattr(desk.pair_loader, "sees", lambda: True)
    desk.attachments.refresh()
    assert not menu_of(desk, 1 - place)
    menu_of(desk, place)["Attach the pages as pictures"].trigger()
    desk.qtbot.waitUntil(lambda: len(names(desk)) == 3 and not desk.model.unsent.reading)
    assert names(desk) == ["b.txt", "tea.pdf, page 1.png", "tea.pdf, page 2.png"]
    images = desk.model.unsent.attachments[1:]
    assert [(one.kind, one.width, one.height) for one in images] == [("image", 1237, 1600)] * 2


def test_a_scan_is_offered_as_pictures_to_a_model_that_sees(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = desk.file("scan.pdf", pdf([""] * 30))
    drop(desk.area, mime(scan))
    assert "may be a scan" in desk.wait_for_notice()
    monkeypatch.setattr(desk.pair_loader, "sees", lambda: True)
    drop(desk.area, mime(desk.file("b.txt"), scan))
    assert "this model can see its pages" in desk.wait_for_notice("scans")
    assert "attach_pages" in desk.notice_list.notices()["scans"].actions
    desk.attachments.attach_scans()
    assert desk.wait_for_notice().startswith("Only 19 of the 30 pages of scan.pdf are attached.")
    desk.qtbot.waitUntil(lambda: len(names(desk)) == 20)
    assert "scans" not in desk.notice_list.notices()
