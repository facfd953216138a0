"""Formulas in a printed chat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QImage, QTextDocument

from app.helper import Helper
from app.helper.messages import RenderMarkdown
from app.ui.chat.transfers import _Document


@pytest.fixture(scope="module")
def html() -> Iterator[str]:
    """A text with two formulas, as it is exported."""
    helper = Helper(seconds=20.0)
    (html,) = helper.ask(RenderMarkdown([r"a $x^2$ and $$\frac{a}{b}$$ and $\unknown$"])).html
    yield html
    helper.stop()


def test_formulas_are_pictures_of_the_document(html: str) -> None:
    document = _Document(html)
    assert document.toPlainText().count("\ufffc") == 2
    assert r"$\unknown$" in document.toPlainText()
    pictures = [document.resource(QTextDocument.ResourceType.ImageResource.value, QUrl(f"formula:{n}")) for n in (0, 1)]
    for picture in pictures:
        assert isinstance(picture, QImage)
        dark = [picture.pixelColor(x, y).alpha() for x in range(picture.width()) for y in range(picture.height())]
        assert max(dark) > 200


def test_nothing_else_is_loaded(html: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    document = _Document(html)
    for name in ("formula:2", "formula:x", "formula:-1", (tmp_path / "a.png").as_uri(), "https://example.org/a.png"):
        assert document.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name)) is None
