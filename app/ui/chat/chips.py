"""What goes with a message, as small buttons: a click shows it, the cross removes it; and what a click shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication, QIcon, QImage, QKeyEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFrame,
    QLabel,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QWidget,
)
from shiboken6 import isValid

from app import words
from app.chats.model import Attachment
from app.ui.actions import Actions
from app.ui.chat.footer import copy_text, icon_button
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import DIALOG_MARGINS, LEFT, MIDDLE, column, explain, label, plain_tooltip, row, scrolling
from app.ui.widgets.theme import SPACING
from app.words import is_right_to_left, visible

_NO_PICTURE = QSize(0, 0)
_WIDEST, _WIDEST_NOTE, _SMALLEST = 260, 200, 60
_GAP = 6
_WIDEST_THUMBNAIL = 3
"""Times its height."""
_MOST_HEIGHT = 104
"""In the composer: about three rows; more scroll."""
MOST_CHARACTERS = 300_000
"""Of a text that are shown: more take a text field too long."""
_WIDTH, _HEIGHT = 640, 520
"""Of the dialog that shows one."""

LoadThumbnail = Callable[[Attachment, int, Callable[[QImage], None]], object]
"""`app.ui.chat.attachments.Thumbnails.load`."""
Choices = Sequence[tuple[str, Callable[[], object]]]
"""What a menu says, and what it does; a separator where it says nothing."""


class Chip(QFrame):
    """One attachment, or a file that is being read."""

    def __init__(
        self,
        name: str,
        detail: str,
        parent: QWidget,
        *,
        show: Callable[[], object] | None = None,
        remove: Callable[[], object] | None = None,
        tag: str = "",
        picture: QSize = _NO_PICTURE,
        choices: Choices = (),
        note: str = "",
        icon: str = "file",
    ) -> None:
        """``show`` and ``remove``: what a click and the cross do, if anything. ``tag``: the caller's name for it.
        ``picture``: the size of what `show_picture` will show. ``choices``: its menu. ``note``: what to know of how the
        file was read."""
        super().__init__(parent)
        self.name = visible(name)
        self.tag = tag
        self._note = visible(note)
        self._remove = remove
        themes.set_role(self, "chip")
        self.button = QPushButton(autoDefault=False)
        themes.set_role(self.button, "chip")
        self._picture = picture
        self._begin_button(show, icon)
        self.remove: QToolButton | None = None
        if remove is not None:
            self.remove = icon_button("close", "", f"Remove {self.name}")
            themes.set_role(self.remove, "chip")
            self.remove.clicked.connect(lambda _checked: remove())
        self.more = self._with_menu(choices) if choices else None
        # Not as high as the chip, whose height it would limit otherwise.
        row(self.button, *((button, MIDDLE) for button in (self.more, self.remove) if button), gap=0, on=self)
        self._set_detail(detail)

    def _begin_button(self, show: Callable[[], object] | None, icon: str) -> None:
        if self._picture.isEmpty():
            icons.set_icon(self.button, icon)
        else:
            self.button.setIconSize(self._picture)
            self.show_picture(QImage())
        self.button.setEnabled(show is not None)
        if show is not None:
            self.button.clicked.connect(lambda _checked: show())
        themes.scale_font(self.button, 0.9)

    def _with_menu(self, choices: Choices) -> QToolButton:
        more = icon_button("more", "", f"More for {self.name}")
        themes.set_role(more, "chip")
        menu = QMenu(more)
        for text, choose in choices:
            if text:
                menu.addAction(text).triggered.connect(partial(_call, choose))
            else:
                menu.addSeparator()
        more.setMenu(menu)
        more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        return more

    def show_picture(self, image: QImage) -> None:
        """In place of a file's icon; nothing for a null image."""
        pixmap = QPixmap.fromImage(image) if not image.isNull() else QPixmap(self._picture)
        if image.isNull():
            pixmap.fill(Qt.GlobalColor.transparent)
        self.button.setIcon(QIcon(pixmap))

    def show_tokens(self, tokens: int) -> None:
        """Show how many tokens it takes."""
        self._set_detail(words.tokens(tokens))

    def _set_detail(self, detail: str, too_wide: int = 0) -> None:
        """``too_wide``: so much less of the note, and then of the name, is shown."""
        self._detail, self._is_cut = detail, too_wide > 0
        metrics = self.button.fontMetrics()
        note = metrics.elidedText(self._note, Qt.TextElideMode.ElideRight, themes.px(_WIDEST_NOTE))
        room = metrics.horizontalAdvance(note) - too_wide
        if too_wide:
            note = metrics.elidedText(note, Qt.TextElideMode.ElideRight, room) if room > themes.px(_SMALLEST) else ""
        whole = metrics.horizontalAdvance(self.name) + 1  # rounded down, it would cut the name
        widest = min(themes.px(_WIDEST) - metrics.horizontalAdvance(detail), whole)
        widest = max(widest + min(room, 0), themes.px(_SMALLEST))
        shown = metrics.elidedText(self.name, Qt.TextElideMode.ElideMiddle, widest)
        self.button.setText("  ·  ".join(filter(None, (shown, detail, note))).replace("&", "&&"))
        self.button.setAccessibleName(", ".join(filter(None, (self.name, detail, self._note))))
        self.button.setToolTip(plain_tooltip("\n".join(filter(None, (self.name, self._note)))))

    def fit(self, width: int) -> QSize:
        """Its size, with less of its text where it would be wider than this."""
        if self._is_cut:
            self._set_detail(self._detail)
        if not self._picture.isEmpty():
            self.button.setIconSize(self._picture)
        size = self.styled_size()
        if not self._picture.isEmpty() and size.width() > width:  # first of the picture, down to half of the width
            least = min(self._picture.width(), width // 2)
            smaller = QSize(max(self._picture.width() - size.width() + width, least), self._picture.height())
            self.button.setIconSize(self._picture.scaled(smaller, Qt.AspectRatioMode.KeepAspectRatio))
            size = self.styled_size()
        if size.width() > width:
            self._set_detail(self._detail, size.width() - width)
            size = self.styled_size()
        return size

    def styled_size(self) -> QSize:
        """Its size with the style that it will have once it is shown."""
        for one in filter(None, (self, self.button, self.more, self.remove)):
            one.ensurePolished()
        layout = self.layout()
        assert layout is not None
        layout.invalidate()
        return layout.sizeHint()

    def text(self) -> str:
        """What is read on it."""
        return self.button.accessibleName()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self._remove is not None:
            self._remove()
        else:
            super().keyPressEvent(event)


class Chips(QWidget):
    """Several of them, in as many rows as they need; see `fit`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: list[Chip] = []
        self.setAccessibleName("Attachments")

    def show_chips(self, chips: Sequence[Chip]) -> None:
        """Show these in the place of those before; they are to be children of this."""
        for chip in self.chips:
            if chip not in chips:
                chip.hide()
                chip.deleteLater()
        self.chips = list(chips)
        before: QWidget | None = None
        for chip in self.chips:
            chip.show()
            for button in filter(None, (chip.button, chip.more, chip.remove)):
                if before is not None:
                    QWidget.setTabOrder(before, button)
                before = button

    def fit(self, width: int) -> int:
        """Arrange them within this width; returns the height they take."""
        x = y = bottom = 0
        for chip in self.chips:
            size = chip.fit(width)
            if x and x + size.width() > width:
                x, y = 0, bottom + _GAP
            chip.setGeometry(x, y, min(size.width(), max(width, 1)), size.height())
            x, bottom = x + size.width() + _GAP, max(bottom, y + size.height())
        return bottom


class ComposerAttachments(QWidget):
    """The chips above the text; hidden while there are none. ``chips``: what they are shown in. ``as_text``: puts text
    that was pasted as an attachment into the message instead."""

    def __init__(self) -> None:
        super().__init__()
        self.chips = Chips()
        self._area = scrolling(self.chips)
        self._area.setWidgetResizable(False)
        self.as_text = QPushButton("Paste as text", autoDefault=False)
        themes.set_role(self.as_text, "link")
        explain(self.as_text, "Put the pasted text into the message instead of attaching it.")
        column(self._area, (self.as_text, LEFT), gap=SPACING, margins=(0, 0, 0, SPACING), on=self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        themes.follow_zoom(self, self.fit)
        self.hide()

    def show_chips(self, chips: Sequence[Chip], *, has_pasted: bool) -> None:
        """Show these; ``has_pasted``: one of them is pasted text."""
        had_focus = self.isAncestorOf(QApplication.focusWidget() or self)
        self.chips.show_chips(chips)
        self.as_text.setVisible(has_pasted)
        self.setVisible(bool(chips))
        self.fit()
        if had_focus and chips:
            chips[-1].button.setFocus()

    def fit(self) -> None:
        """Arrange them anew."""
        width = max(self.width(), 1)
        height = self.chips.fit(width)
        if height > themes.px(_MOST_HEIGHT):
            width -= self._area.verticalScrollBar().sizeHint().width()
            height = self.chips.fit(width)
        self.chips.resize(width, max(height, 1))
        self._area.setFixedHeight(max(1, min(height, themes.px(_MOST_HEIGHT))))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit()


def details_of(attachment: Attachment, tokens: int | None) -> str:
    """How much of the context it takes; until that is known, how large it is."""
    if attachment.is_missing:
        return "missing"
    if tokens is not None:
        return words.tokens(tokens)
    return f"{words.number(max(1, round(attachment.size / 1000)))}{words.NO_BREAK}KB"


def thumbnail_size(image: Attachment, height: int) -> QSize:
    """Of a thumbnail at most so high, in its proportions."""
    size, most = QSize(image.width or height, image.height or height), largest_thumbnail(height)
    if size == size.boundedTo(most):
        return size
    return size.scaled(most, Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1))


def largest_thumbnail(height: int) -> QSize:
    """Of thumbnails at most so high."""
    return QSize(_WIDEST_THUMBNAIL * height, height)


def chips_of(
    attachments: Sequence[Attachment],
    parent: QWidget,
    actions: Actions,
    height: int,
    remove: Callable[[int], object] | None = None,
    *,
    choices_of: Callable[[Attachment], Choices] = lambda _attachment: (),
    note_of: Callable[[Attachment], str] = lambda _attachment: "",
) -> list[Chip]:
    """A chip for each attachment, images with thumbnails of this ``height``. ``remove`` gets the place of one; without
    it, none can be removed."""
    chips: list[Chip] = []
    for place, one in enumerate(attachments):
        has_picture = one.kind == "image" and bool(one.path)
        chip = Chip(
            one.name,
            details_of(one, actions.run("tokens_of", one)),
            parent,
            show=None if one.is_missing else partial(actions.run, "show_attachment", one),
            remove=None if remove is None else partial(remove, place),
            tag=one.sha256,
            picture=thumbnail_size(one, height) if has_picture else _NO_PICTURE,
            choices=choices_of(one),
            note=note_of(one),
        )
        if has_picture:
            show = partial(_show_picture, chip)
            actions.run("load_thumbnail", one, round(height * parent.devicePixelRatioF()), show)
        chips.append(chip)
    return chips


def _call(choose: Callable[[], object], _checked: bool = False) -> None:
    choose()


def _show_picture(chip: Chip, image: QImage) -> None:
    if isValid(chip):
        chip.show_picture(image)


class AttachmentPreview(QDialog):
    """Shows the text of one."""

    def __init__(
        self, attachment: Attachment, tokens: int | None, parent: QWidget | None = None, *, note: str = ""
    ) -> None:
        """``note``: what should be known of how the file was read."""
        super().__init__(parent)
        self.setWindowTitle(visible(attachment.name))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        shown = attachment.text[:MOST_CHARACTERS]
        parts = [f"{words.number(len(attachment.text))} characters"]
        if tokens is not None:
            parts.append(details_of(attachment, tokens))
        if len(shown) < len(attachment.text):
            parts.append(f"the first {words.number(len(shown))} are shown")
        note = visible(note)
        after = f" {note[0].upper()}{note[1:]}." if note else ""
        self.details = label(f"What the model reads: {', '.join(parts)}.{after}", "quiet", wraps=True)
        self.text = QPlainTextEdit(readOnly=True, tabChangesFocus=True)
        self.text.setAccessibleName(f"Text of {visible(attachment.name)}")
        self.text.setFont(themes.monospace_for(self.text.font()))
        if is_right_to_left(shown[:1000]):
            self.text.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
        self.text.setPlainText(shown)
        copy, close = QPushButton("Copy", autoDefault=False), QPushButton("Close", default=True)
        copy.clicked.connect(lambda: copy_text(attachment.text, copy))
        close.clicked.connect(self.accept)
        column(self.details, (self.text, 1), row(None, copy, close), margins=DIALOG_MARGINS, on=self)
        screen = QGuiApplication.primaryScreen().availableSize()
        self.resize(min(themes.px(_WIDTH), screen.width()), min(themes.px(_HEIGHT), screen.height()))
        self.text.setFocus()


class ImagePreview(QDialog):
    """Shows an image."""

    def __init__(self, attachment: Attachment, load: LoadThumbnail, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(visible(attachment.name))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.picture = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        size = f"{words.number(attachment.width)} × {words.number(attachment.height)} pixels"
        self.picture.setAccessibleName(f"{visible(attachment.name)}, {size}")
        close = QPushButton("Close", default=True)
        close.clicked.connect(self.accept)
        column((self.picture, 1), row(label(size, "quiet"), None, close), margins=DIALOG_MARGINS, on=self)
        height = min(themes.px(_HEIGHT), QGuiApplication.primaryScreen().availableSize().height() // 2)
        self.picture.setMinimumSize(thumbnail_size(attachment, height))
        load(attachment, round(height * self.devicePixelRatioF()), self._show)

    def _show(self, image: QImage) -> None:
        if isValid(self):
            pixmap = QPixmap.fromImage(image)
            pixmap.setDevicePixelRatio(self.devicePixelRatioF())
            self.picture.setPixmap(pixmap)
