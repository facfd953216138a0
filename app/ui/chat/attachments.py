"""What is attached to the message in the composer: files and texts that were chosen, dropped or pasted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog
from shiboken6 import isValid

from app import words
from app.chats.attachments import Content
from app.chats.model import Attachment
from app.chats.transfer import NoTextError, content_of, pages_of
from app.helper import READING_SECONDS, Helper, HelperError
from app.helper.messages import LANGUAGES, ChatsRead, Form, ReadChats
from app.system import KnownError
from app.tools.messages import CallEnded
from app.ui import notices
from app.ui.chat.chips import AttachmentPreview, Chip, Choices, ImagePreview, chips_of, largest_thumbnail
from app.ui.chat.composer import Composer
from app.ui.chat.context_meter import ContextMeter, ContextUse
from app.ui.chat.drop_area import DropArea
from app.ui.chat.images import PASTED_IMAGE, decoded, image_content, image_file, pasted_image
from app.ui.chat.model import ChatModel
from app.ui.context import AppContext
from app.ui.widgets import theme as themes
from app.ui.widgets.questions import ask, open_in_folder
from app.ui.widgets.tasks import Lane
from app.words import printable, shortened

SUBJECT = "attachments"
_LONGEST_NAME = 60
_EXPORTS = (".json", ".jsonl", ".zip")
"""Files that may have the chats of another app."""
IMAGES_SUBJECT = "blind"
SCANS_SUBJECT = "scans"
_WEB_PAGE = "text/html"
_PDF = "application/pdf"
PASTED = "Pasted text"
MOST_ATTACHMENTS = 20
"""Of a message."""
_PATIENCE_SECONDS = 5.0
_PICTURE = 40
"""The height of a thumbnail."""
_MODEL = ".gguf"
_MOST_CUTS = 5
"""How often a text is made shorter until it fits: how many tokens a part of it takes is only estimated."""
ENDING = " (beginning)"
_ANSWER = 1024
"""Tokens to leave free for an answer where a text is cut, or a quarter of the context if that is less."""
_CAREFUL = 0.97
_LAST_PART = 5
"""A cut may be moved to the end of a line within this fraction (one over it) of what stays."""
_THUMBNAILS = 256
"""That are kept."""

_MOST = f"No more than {MOST_ATTACHMENTS} files can be attached to a message."
_ONLY_AN_ADDRESS = (
    "The browser passed on only the address of this picture, and Slipstream fetches nothing from the internet. Copy "
    "the picture in the browser and paste it here, or save it and drop the file."
)


class Attachments(QObject):
    """One for a window. Files are read one after another, in a lane. ``thumbnails``: those of attached images, here and
    in messages."""

    def __init__(self, ctx: AppContext, composer: Composer, area: DropArea, meter: ContextMeter) -> None:
        super().__init__(composer)
        self._actions = ctx.actions
        self._composer = composer
        self._meter = meter
        self._loader = ctx.loader
        self._notice_list = ctx.notices
        self._lane = Lane(self, "files to attach")
        self._helper = Helper(READING_SECONDS)
        self.thumbnails = Thumbnails(self)
        self._model = ctx.chats.current
        self._failures: list[str] = []
        """Of what was attached last."""
        self._read: dict[str, tuple[str, Content]] = {}
        """The files that were read in this window, and what was said of their texts, by the checksums of these."""
        self._scans: list[tuple[ChatModel, str]] = []
        """PDF files without text that were attached last, and to which chat."""
        self._cuts = 0
        """How often more may be cut off."""
        area.takes_pictures = True
        area.files_dropped.connect(self.attach_files)
        area.picture_dropped.connect(self._on_picture)
        composer.attach_button.clicked.connect(self.choose)
        composer.editor.files_pasted.connect(self.attach_files)
        composer.editor.text_pasted.connect(self.attach_text)
        composer.editor.image_pasted.connect(self.attach_image)
        composer.attachments.as_text.clicked.connect(self._on_as_text)
        meter.changed.connect(self._on_counted)
        ctx.loader.pair_changed.connect(self.refresh)
        ctx.closing.callback(self._close)
        ctx.chats.follow(self._show, unsent__attachments_changed=self.refresh, settings_changed=self.refresh)

    def _show(self, model: ChatModel) -> None:
        self._model = model
        self._cuts = 0
        self.refresh()

    def _close(self) -> None:
        self.thumbnails.close()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    # ------------------------------------------------------------ what is attached

    @Slot()
    def choose(self) -> None:
        """Ask for files."""
        dialog = QFileDialog(self._composer.window(), "Attach files")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.filesSelected.connect(self.attach_files)
        dialog.accepted.connect(self._composer.setFocus)
        open_in_folder(dialog, "")

    @Slot(list)
    def attach_files(self, paths: Sequence[str]) -> None:
        """Attach these; a model is opened instead, and chats of another app may be imported."""
        model = self._model
        self._failures = []
        self._scans = []
        self._notice_list.remove(SUBJECT, IMAGES_SUBJECT, SCANS_SUBJECT)
        models = [path for path in paths if path.lower().endswith(_MODEL)]
        if models:
            self._actions.run("open_model_file", models[0])
        files = [path for path in paths if path not in models]
        with_chats: list[str] = []
        waiting = len(files)

        def looked(path: str, has_chats: bool) -> None:
            nonlocal waiting
            waiting -= 1
            if has_chats:
                with_chats.append(path)
            elif isValid(model):
                self._attach_file(model, path)
            if waiting == 0 and with_chats and isValid(model):
                self._ask_about_chats(model, with_chats)

        def unknown(path: str, _error: KnownError) -> None:
            looked(path, False)

        for path in files:
            if may_have_chats(path):
                self._lane.submit(partial(has_chats, path, self._helper), partial(looked, path), partial(unknown, path))
            else:
                looked(path, False)

    def _ask_about_chats(self, model: ChatModel, paths: Sequence[str]) -> None:
        is_one = len(paths) == 1
        what = f"{name_of(paths[0])} contains chats" if is_one else f"{len(paths)} of these files contain chats"

        def attach() -> None:
            for path in paths:
                if isValid(model):
                    self._attach_file(model, path)

        def import_them() -> None:
            self._actions.run("import_chats", [Path(path) for path in paths])

        ask(
            self._composer.window(),
            "Import or attach",
            f"{what} that were exported from an app.",
            details=f"Import the chats into your list, or attach the file{'' if is_one else 's'} to your message?",
            safe={"Import": import_them, "Attach": attach},
        )

    def _attach_file(self, model: ChatModel, path: str) -> None:
        self._attach(model, name_of(path), partial(file_content, path, self._helper), path=path)

    # ------------------------------------------------------------ read in another way

    def _remember(self, path: str, content: Content) -> None:
        if path and content.kind == "text":
            self._read[hashlib.sha256(content.data).hexdigest()] = path, replace(content, data=b"")

    def _choices_of(self, attachment: Attachment) -> Choices:
        """The other ways to attach a file: a PDF file as pictures; a web page as its source; in another encoding."""
        if attachment.sha256 not in self._read:
            return ()
        path, content = self._read[attachment.sha256]
        if content.media_type == _PDF:
            attach = partial(self._attach_pages, self._model, path, attachment)
            return [("Attach the pages as pictures", attach)] if self._loader.sees() else ()
        read = partial(self._read_again, self._model, attachment, path)
        choices: list[tuple[str, Callable[[], object]]] = []
        if content.media_type == _WEB_PAGE:
            is_source = attachment.text.lstrip().startswith("<")
            text, form = ("Attach its text only", "text") if is_source else ("Attach its source instead", "source")
            choices += [(text, partial(read, content.encoding, form)), ("", list)]
        if content.encoding or ("\ufffd" in attachment.text and content.media_type.startswith("text/")):
            for name, languages in LANGUAGES.items():
                if name != content.encoding:
                    choices.append((f"Read as {name} ({languages})", partial(read, name, "")))
        return choices[:-1] if choices and not choices[-1][0] else choices

    def _read_again(self, model: ChatModel, attachment: Attachment, path: str, encoding: str, form: Form) -> None:
        """Read a file in another way, and attach that in place of the first version."""

        def done(content: Content) -> None:
            if isValid(model):
                self._remember(path, content)
                model.attach(content, in_place_of=attachment)

        read = partial(content_of, path, name_of(path), self._helper, encoding, form)
        self._lane.submit(read, done, self._tell)

    def _note_of(self, attachment: Attachment) -> str:
        return self._read[attachment.sha256][1].note if attachment.sha256 in self._read else ""

    # ------------------------------------------------------------ pages of PDF files

    @Slot()
    def attach_scans(self) -> None:
        """Attach the pages of PDF files that have no text."""
        scans, self._scans = self._scans, []
        self._notice_list.remove(SCANS_SUBJECT)
        for model, path in scans:
            if isValid(model):
                self._attach_pages(model, path)

    def _attach_pages(self, model: ChatModel, path: str, in_place_of: Attachment | None = None) -> None:
        """Attach its pages as images, in place of its text if that is attached."""
        unsent, name = model.unsent, name_of(path)
        unsent.attach([one for one in unsent.attachments if one != in_place_of])
        room = MOST_ATTACHMENTS - len(unsent.attachments) - len(unsent.reading)
        begun = unsent.begin_reading(name)

        def done(found: tuple[list[Content], int]) -> None:
            if not isValid(model) or not unsent.end_reading(begun):
                return
            images, pages = found
            for image in images:
                model.attach(image)
            if len(images) < pages:
                self._tell(
                    KnownError(f"Only {len(images)} of the {words.number(pages)} pages of {name} are attached. {_MOST}")
                )

        def failed(error: KnownError) -> None:
            if isValid(model) and unsent.end_reading(begun):
                self._tell(error)

        self._lane.submit(partial(pages_of, path, name, room, self._helper), done, failed)

    @Slot(QImage)
    def attach_image(self, image: QImage) -> None:
        """Attach an image that was pasted."""
        self._failures = []
        self._attach(self._model, PASTED_IMAGE, partial(pasted_image, image))

    def attach_result(self, model: ChatModel, name: str, result: CallEnded, *, with_text: bool = True) -> None:
        """Attach the images that a server sent, and the text."""
        self._failures = []
        name = shortened(printable(name), _LONGEST_NAME)
        for image in result.images:
            self._attach(model, name, partial(image_content, image.data, name))
        if with_text and (result.text or not result.images):
            text = Content("text", name, result.text.encode("utf-8", "replace"), "text/plain")
            self._attach(model, name, lambda: text)

    @Slot(object)
    def _on_picture(self, picture: QImage | None) -> None:
        if picture is not None:
            self.attach_image(picture)
        else:
            self._failures = []
            self._tell(KnownError(_ONLY_AN_ADDRESS))

    def _attach(self, model: ChatModel, name: str, read: Callable[[], Content], *, path: str = "") -> None:
        unsent = model.unsent
        if len(unsent.attachments) + len(unsent.reading) >= MOST_ATTACHMENTS:
            self._tell(KnownError(_MOST))
            return
        begun = unsent.begin_reading(name)

        def done(content: Content) -> None:
            if isValid(model) and begun in unsent.reading:
                self._remember(path, content)
                notice = self._loader.why_no_images() if content.kind == "image" else None
                if notice is None:
                    model.attach(content, reading=begun)
                elif unsent.end_reading(begun):
                    self._notice_list.show(IMAGES_SUBJECT, notice)

        def failed(error: KnownError) -> None:
            if not isValid(model) or not unsent.end_reading(begun):
                return
            if isinstance(error, NoTextError) and self._loader.sees():
                self._scans.append((model, path))
                self._notice_list.show(SCANS_SUBJECT, notices.has_no_text(name))
            else:
                self._tell(error)

        self._lane.submit(read, done, failed)

    def _tell(self, error: KnownError) -> None:
        if str(error) not in self._failures:
            self._failures.append(str(error))
        self._notice_list.show(SUBJECT, notices.plain_text("\n".join(self._failures)))

    @Slot(str)
    def attach_text(self, text: str) -> None:
        """Attach a text that was pasted."""
        unsent = self._model.unsent
        names = [*(one.name for one in unsent.attachments), *unsent.reading.values()]
        number = sum(name.startswith(PASTED) for name in names) + 1
        name = PASTED if number == 1 else f"{PASTED} {number}"
        content = Content("text", name, text.encode("utf-8", "replace"), "text/plain")
        self._model.attach(content, reading=unsent.begin_reading(name))

    @Slot()
    def _on_as_text(self) -> None:
        """The text that was pasted last goes into the message."""
        attachments = list(self._model.unsent.attachments)
        place = next((place for place in reversed(range(len(attachments))) if _is_pasted(attachments[place])), None)
        if place is not None:
            text = attachments.pop(place).text
            self._model.unsent.attach(attachments)
            self._composer.editor.insertPlainText(text)
            self._composer.editor.ensureCursorVisible()
            self._composer.setFocus()

    # ------------------------------------------------------------ too long

    def use_beginning(self) -> None:
        """Cut the end off what is attached, so that the message fits in the context."""
        self._cuts = _MOST_CUTS
        self._cut()

    def _cut(self) -> None:
        """Shorten the longest text."""
        use, model = self._meter.use, self._model
        if use is None or self._cuts == 0 or use.too_many <= 0:
            self._cuts = 0
            return
        counted = [(self._meter.tokens_of(one) or 0, one) for one in model.unsent.attachments if one.kind == "text"]
        if not counted or model.unsent.reading:
            return
        self._cuts -= 1
        tokens, longest = max(counted, key=lambda one: one[0])
        content = cut_to_fit(longest, tokens, use)
        if content is not None:
            model.attach(content, in_place_of=longest)

    # ------------------------------------------------------------ what is shown

    @Slot()
    def _on_counted(self) -> None:
        shown = [chip for chip in self._composer.attachments.chips.chips if chip.tag]
        for chip, one in zip(shown, self._model.unsent.attachments, strict=False):
            if chip.tag == one.sha256 and (tokens := self._meter.tokens_of(one)) is not None:
                chip.show_tokens(tokens)
        self._composer.attachments.fit()
        if self._cuts:
            self._cut()

    @Slot()
    def refresh(self) -> None:
        """Show what is attached; another model may see what the last one didn't."""
        part, unsent = self._composer.attachments, self._model.unsent
        chips = chips_of(
            *(unsent.attachments, part.chips, self._actions, themes.px(_PICTURE), self._remove),
            choices_of=self._choices_of,
            note_of=self._note_of,
        )
        for number, name in unsent.reading.items():
            chips.append(Chip(name, "reading…", part.chips, remove=partial(unsent.end_reading, number)))
        for folder in self._model.settings.folders:
            remove = partial(self._forget_folder, folder)
            chips.append(Chip(folder, "tools may read it", part.chips, remove=remove, icon="folder"))
        part.show_chips(chips, has_pasted=any(_is_pasted(one) for one in unsent.attachments))
        self._composer.set_attached(bool(unsent.attachments), is_reading=bool(unsent.reading))

    def _forget_folder(self, folder: str) -> None:
        settings = self._model.settings
        folders = [one for one in settings.folders if one != folder]
        self._model.set_settings(msgspec.structs.replace(settings, folders=folders))

    def _remove(self, place: int) -> None:
        attachments = list(self._model.unsent.attachments)
        del attachments[place]
        self._model.unsent.attach(attachments)
        if not attachments:
            self._composer.setFocus()

    def preview(self, attachment: Attachment) -> None:
        """Show what the model reads of it."""
        if attachment.kind == "image":
            ImagePreview(attachment, self.thumbnails.load, self._composer.window()).open()
            return
        tokens, note = self._meter.tokens_of(attachment), self._note_of(attachment)
        AttachmentPreview(attachment, tokens, self._composer.window(), note=note).open()


def _is_pasted(attachment: Attachment) -> bool:
    return attachment.name.startswith(PASTED) and attachment.media_type == "text/plain"


def cut_to_fit(attachment: Attachment, tokens: int, use: ContextUse) -> Content | None:
    """As much of the beginning as there is room for; ``None`` if nothing would stay. ``tokens``: what it takes now."""
    room = min(_ANSWER, use.length // 4)
    stays = tokens - use.too_many - room
    if stays <= 0 or not attachment.text:
        return None
    length = int(len(attachment.text) * stays / tokens * _CAREFUL)
    text = attachment.text[:length]
    end = text.rfind("\n", length - length // _LAST_PART)
    text = text[:end] if end > 0 else text
    if not text.strip():
        return None
    name = attachment.name if attachment.name.endswith(ENDING) else attachment.name + ENDING
    return Content("text", name, text.encode("utf-8", "replace"), attachment.media_type)


class Thumbnails(QObject):
    """Small pictures of attached images, kept by checksum."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "thumbnails")
        self._known: dict[tuple[str, int], QImage] = {}

    def load(self, attachment: Attachment, height: int, show: Callable[[QImage], None]) -> None:
        """``show`` gets the picture, ``height`` pixels high at most, at once or later; never, if there is none."""
        key = attachment.sha256, height
        if (known := self._known.get(key)) is not None:
            show(known)
            return

        def loaded(image: QImage) -> None:
            if not image.isNull():
                while len(self._known) >= _THUMBNAILS:
                    del self._known[next(iter(self._known))]
                self._known[key] = image
                show(image)

        if attachment.path:
            self._lane.submit(partial(_thumbnail, attachment.path, height), loaded)

    def close(self) -> None:
        """Load nothing any more."""
        self._lane.close()


def _thumbnail(path: str, height: int) -> QImage:
    try:
        return decoded(Path(path).read_bytes(), largest_thumbnail(height))
    except OSError:
        return QImage()


# ------------------------------------------------------------ reading, in a lane


def name_of(path: str) -> str:
    """The name of a file, fit to be shown."""
    return shortened(printable(Path(path).name or path), _LONGEST_NAME)


def file_content(path: str, helper: Helper) -> Content:
    """The text of a file, or an image. Raises `KnownError`."""
    return image_file(Path(path), helper) or content_of(path, name_of(path), helper)


def may_have_chats(path: str) -> bool:
    """Whether it is worth asking `has_chats`, by its name alone."""
    return path.lower().endswith(_EXPORTS) or not Path(path).suffix


def has_chats(path: str, helper: Helper) -> bool:
    """Whether a file or a folder has chats that were exported from an app."""
    if not path.lower().endswith(_EXPORTS) and not os.path.isdir(path):  # noqa: PTH112 - which raises nothing
        return False
    try:
        found = helper.ask(ReadChats([path]))
    except HelperError:
        return False
    finally:
        helper.stop()  # it may be in the middle of a large file
    return isinstance(found, ChatsRead) and bool(found.batch.chats)
