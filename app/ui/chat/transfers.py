"""Chats in and out: import, export and printing, and what does it in a thread of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QByteArray, QObject, QRectF, QStandardPaths, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QImage, QPainter, QTextDocument
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QDialog,
    QFileDialog,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QRadioButton,
    QWidget,
)

from app import words
from app.chats.exporting import Export, file_name
from app.chats.formats.html_page import for_paper
from app.chats.formats.records import ChatRecord
from app.chats.formats.writing import WRITE, WriteFormat
from app.chats.importing import Import, Imported, Summary
from app.helper import Helper
from app.system import KnownError
from app.ui.chat.list.model import UNTITLED
from app.ui.chat.writer import StoredChats
from app.ui.widgets import theme
from app.ui.widgets.controls import DIALOG_MARGINS, column, explain, label, row, show_text
from app.ui.widgets.focus import announce
from app.ui.widgets.questions import ask_where_to_save, choose_folder, open_in_folder
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING
from app.words import printable, shortened, visible

_PATIENCE_SECONDS = 5.0

T = TypeVar("T")
Progress = Callable[[float], None]
"""Gets the share that is done, 0 to 1."""
Failed = Callable[[KnownError], None]
_IMPORT_SIZE = 640, 400
_EXPORT_WIDTH = 480
_STEPS = 1000
_SOURCES = (
    ("ChatGPT", "Settings, Data controls, Export data. Choose the .zip file from the email."),
    ("Claude", "Settings, Privacy, Export data. Choose the .zip file from the email."),
    ("Open WebUI", "Settings, Data controls, Export chats."),
    ("llama.cpp’s page", "Settings, Import/Export."),
    ("LM Studio", "Choose the folder “conversations” in the folder “.lmstudio”."),
    ("Jan", "Choose the folder “threads” in Jan’s data folder."),
    ("Slipstream", "Chats that were exported as Slipstream JSON or Markdown."),
    ("Other programs", "Files with ShareGPT conversations or OpenAI messages."),
)
_INTRODUCTION = (
    "Slipstream recognizes these files by their content. It reads them on this computer and sends nothing anywhere."
)
_NOTHING = "These files contain no chats that Slipstream can read."
_LONGEST_TITLE = 60


class _Job:
    """A task, as whoever started it sees it."""

    def __init__(self) -> None:
        self.canceled = threading.Event()
        self.is_wanted = True
        """Whether somebody still wants to hear of it."""

    def only(self, call: Callable[[T], None]) -> Callable[[T], None]:
        """``call``, as long as it is wanted."""
        return lambda value: call(value) if self.is_wanted else None


class ChatTransfers(QObject):
    """One for a window. Every function that is passed in is called in the window's thread. Signal ``chats_added``: an
    import has added chats; it may still be running."""

    chats_added = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store
        self._lane = Lane(self, "chats in and out")
        self._job = _Job()
        """The latest."""
        self._helper = Helper()
        """Renders Markdown."""

    def summarize(
        self, paths: Sequence[Path], progress: Progress, done: Callable[[Summary], None], failed: Failed
    ) -> None:
        """Say what is in files and folders."""
        job = self._begin()
        self._submit(job, self._reading(job, paths, progress).summary, done, failed)

    def import_chats(
        self, paths: Sequence[Path], folder: str, progress: Progress, done: Callable[[Imported], None], failed: Failed
    ) -> None:
        """Add their chats, to ``folder`` if they bring none. If it is canceled, what was added stays."""
        job = self._begin()
        reading = self._reading(job, paths, progress)

        def run() -> Imported:
            try:
                return reading.run(
                    lambda chats: self._chat_store.wait_for(lambda store: store.add_records(chats, folder))
                )[0]
            finally:
                self._lane.post(self.chats_added.emit)

        self._submit(job, run, done, failed)

    def export(
        self,
        chat_ids: Sequence[str],
        format_name: str,
        path: Path,
        progress: Progress,
        done: Callable[[Path], None],
        failed: Failed,
    ) -> None:
        """Write chats to a file or, if ``path`` is one, into a folder, each to a file of its own."""
        job = self._begin()
        export = self._export(job, lambda count: self._tell(job, progress, count / len(chat_ids)))

        def run() -> Path:
            if path.is_dir():
                export.to_folder(chat_ids, format_name, path)
            else:
                export.to_file(chat_ids, format_name, path)
            return path

        self._submit(job, run, done, failed)

    def for_paper(self, chat_id: str, done: Callable[[str], None], failed: Failed) -> None:
        """A chat as HTML for Qt's rich text."""
        job = self._begin()
        export = self._export(job, lambda _count: None)
        self._submit(
            job,
            lambda: for_paper(self._chat_store.wait_for(lambda store: store.record(chat_id)), export.render),
            done,
            failed,
        )

    def cancel(self) -> None:
        """Stop what was started last. An import is done then; anything else has failed."""
        self._job.canceled.set()

    def leave(self) -> None:
        """Stop what was started last, and call nothing more for it."""
        self._job.is_wanted = False
        self._job.canceled.set()

    def close(self) -> None:
        """Stop what is running and accept nothing more."""
        self._job.canceled.set()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    def _begin(self) -> _Job:
        self._job = _Job()
        return self._job

    def _submit(self, job: _Job, run: Callable[[], T], done: Callable[[T], None], failed: Failed) -> None:
        self._lane.submit(run, job.only(done), job.only(failed))

    def _tell(self, job: _Job, progress: Progress, share: float) -> None:
        """From any thread."""
        self._lane.post(lambda: job.only(progress)(share))

    def _reading(self, job: _Job, paths: Sequence[Path], progress: Progress) -> Import:
        return Import(paths, job.canceled.is_set, lambda share: self._tell(job, progress, share))

    def _export(self, job: _Job, on_progress: Callable[[int], None]) -> Export:
        def read(chat_id: str) -> ChatRecord:
            return self._chat_store.wait_for(lambda store: store.record(chat_id))

        return Export(read, self._helper, job.canceled.is_set, on_progress)


class _Dialog(QDialog):
    """What both dialogs have."""

    def __init__(self, transfers: ChatTransfers, parent: QWidget | None) -> None:
        super().__init__(parent)
        self._transfers = transfers
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS)
        self._bar.setAccessibleName("Progress")

    def _on_progress(self, share: float) -> None:
        self._bar.setValue(round(share * _STEPS))

    def done(self, result: int) -> None:
        self._transfers.leave()
        super().done(result)


class ExportDialog(_Dialog):
    """Exports chats, and stays open until that is done. Signal ``exported``: the file or folder that was written."""

    exported = Signal(object)

    def __init__(
        self, transfers: ChatTransfers, chats: Sequence[tuple[str, str]], parent: QWidget | None = None
    ) -> None:
        """``chats``: ids and titles."""
        super().__init__(transfers, parent)
        self._chats = list(chats)
        one = len(chats) == 1
        title = (
            f"“{shortened(visible(chats[0][1] or UNTITLED), _LONGEST_TITLE)}”"
            if one
            else words.count(len(chats), "chat")
        )
        self.setWindowTitle("Export chat" if one else "Export chats")
        self._group = QButtonGroup(self)
        self._formats = QWidget()
        self._error = label(role="warning", wraps=True)
        self._error.hide()
        self._bar.hide()
        self._cancel = QPushButton("Cancel", autoDefault=False)
        self._export = QPushButton("Export…", default=True)
        theme.set_role(self._export, "primary")
        self._cancel.clicked.connect(self.reject)
        self._export.clicked.connect(self._ask)
        column(*(self._format_part(name, wanted) for name, wanted in WRITE.items()), gap=2 * SPACING, on=self._formats)
        column(
            label(f"Export {title} as", wraps=True, bold=True),
            self._formats,
            self._error,
            self._bar,
            None,
            row(None, self._cancel, self._export),
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )
        self._group.buttons()[0].setChecked(True)
        self._group.buttons()[0].setFocus()
        self.resize(theme.px(_EXPORT_WIDTH), self.sizeHint().height())

    def choose(self, name: str) -> None:
        """Select the format of this name."""
        self._group.button(list(WRITE).index(name)).setChecked(True)

    def _format_part(self, name: str, wanted: WriteFormat) -> QWidget:
        part = QWidget()
        button = QRadioButton(f"{wanted.title} ({wanted.suffix})")
        button.setAccessibleDescription(wanted.description)
        self._group.addButton(button, list(WRITE).index(name))
        text = label(wanted.description, "quiet", wraps=True)
        text.setIndent(6 * SPACING)
        column(button, text, gap=0, on=part)
        return part

    def _ask(self) -> None:
        """Ask where to: for a file, or for a folder if each chat needs a file of its own."""
        name = list(WRITE)[self._group.checkedId()]
        wanted, run = WRITE[name], partial(self._run, name)
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        if len(self._chats) == 1 or wanted.joins:
            title = self._chats[0][1] if len(self._chats) == 1 else "Chats"
            proposal = Path(documents) / file_name(title, wanted.suffix)
            ask_where_to_save(self, self.windowTitle(), proposal, wanted.title, run)
        else:
            choose_folder(self, self.windowTitle(), documents, lambda folder: run(Path(folder)))

    def _run(self, name: str, path: Path) -> None:
        self._formats.setEnabled(False)
        self._export.setEnabled(False)
        self._error.hide()
        self._bar.setVisible(len(self._chats) > 1)
        ids = [chat_id for chat_id, _title in self._chats]
        self._transfers.export(ids, name, path, self._on_progress, self._on_done, self._on_failed)

    def _on_done(self, path: Path) -> None:
        self.exported.emit(path)
        self.accept()

    @Slot(object)
    def _on_failed(self, error: KnownError) -> None:
        self._formats.setEnabled(True)
        self._export.setEnabled(True)
        self._bar.hide()
        show_text(self._error, visible(str(error)))


class ImportDialog(_Dialog):
    """Reads, shows a summary, and imports when that is accepted. Signal ``shown_requested``: the user wants to see the
    imported chats; has their ids."""

    shown_requested = Signal(object)

    def __init__(self, transfers: ChatTransfers, parent: QWidget | None = None) -> None:
        super().__init__(transfers, parent)
        self.setWindowTitle("Import chats")
        self._paths: list[Path] = []
        self._imported: Imported | None = None
        self._is_running = False
        self._heading = label(role="heading", wraps=True, scale=1.2, bold=True)
        self._text = label(wraps=True)
        self._left_out = label(role="quiet", wraps=True)
        self._sources = _sources_part()
        self._into_folder = QCheckBox("Add to folder")
        self._folder = QLineEdit()
        self._folder_part = QWidget()
        self._choose_files = QPushButton("Choose files…")
        self._choose_folder = QPushButton("Choose folder…")
        self._import = QPushButton("Import")
        self._show = QPushButton("Show")
        self._close = QPushButton("Cancel", autoDefault=False)
        self._build()
        self._show_choice()

    def read(self, paths: Sequence[Path]) -> None:
        """Read these files and folders, and show what is in them."""
        self._paths = list(paths)
        name = printable(self._paths[0].name) if len(self._paths) == 1 else words.count(len(self._paths), "file")
        self._begin(f"Reading {name}…", "Cancel")
        self._transfers.summarize(self._paths, self._on_progress, self._on_summary, self._on_failed)

    # ------------------------------------------------------------ building

    def _build(self) -> None:
        for button in (self._choose_files, self._import, self._show):
            theme.set_role(button, "primary")
        self._folder.setAccessibleName("Name of the folder")
        explain(self._choose_folder, "Reads all files of a folder and of the folders in it.")
        row((self._into_folder, 0), (self._folder, 1), on=self._folder_part)
        self._into_folder.toggled.connect(self._folder.setEnabled)
        self._choose_files.clicked.connect(self._ask_for_files)
        self._choose_folder.clicked.connect(self._ask_for_folder)
        self._import.clicked.connect(self._run)
        self._show.clicked.connect(self._on_show)
        self._close.clicked.connect(self._on_close)
        buttons = row(None, self._close, self._choose_folder, self._choose_files, self._import, self._show)
        column(
            self._heading,
            self._text,
            self._sources,
            self._left_out,
            self._folder_part,
            self._bar,
            None,
            buttons,
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )
        self.resize(*map(theme.px, _IMPORT_SIZE))

    def _arrange(self, heading: str, text: str, *shown: QWidget, close: str) -> None:
        """Show the next step: its texts and, of the parts that not every step has, these."""
        self._heading.setText(heading)
        show_text(self._text, text)
        show_text(self._left_out, "")
        parts = (self._sources, self._folder_part, self._bar)
        for part in (*parts, self._choose_files, self._choose_folder, self._import, self._show):
            part.setVisible(part in shown)
        self._close.setText(close)
        self._close.setEnabled(True)
        self._is_running = self._bar in shown
        first = next((one for one in shown if isinstance(one, QPushButton)), self._close)
        first.setDefault(True)
        first.setFocus()
        announce(self, f"{heading}. {text}")

    # ------------------------------------------------------------ steps

    def _show_choice(self) -> None:
        self._arrange(
            "Bring your chats from another app",
            _INTRODUCTION,
            *(self._sources, self._choose_files, self._choose_folder),
            close="Cancel",
        )

    def _begin(self, heading: str, close: str) -> None:
        self._bar.setValue(0)
        self._arrange(heading, "", self._bar, close=close)

    def _ask_for_files(self) -> None:
        dialog = QFileDialog(self, "Import chats")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters(["Chats (*.json *.jsonl *.md *.zip)", "All files (*)"])
        dialog.filesSelected.connect(lambda names: self.read([Path(name) for name in names]))
        open_in_folder(dialog, QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DownloadLocation))

    def _ask_for_folder(self) -> None:
        home = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.HomeLocation)
        choose_folder(self, "Import chats", home, lambda name: self.read([Path(name)]))

    def _run(self) -> None:
        folder = self._folder.text() if self._into_folder.isChecked() else ""
        self._begin("Importing…", "Stop")
        self._transfers.import_chats(self._paths, folder, self._on_progress, self._on_imported, self._on_failed)

    def _on_summary(self, summary: Summary) -> None:
        left_out = summary.not_imported()
        if not summary.chats:
            self._arrange("No chats found", _NOTHING, self._choose_files, self._choose_folder, close="Cancel")
        else:
            text = f"{_contents(summary)} What is already here won’t be added again."
            self._arrange(_found(summary.chats), text, self._folder_part, self._import, close="Cancel")
            self._folder.setText(summary.folder() or "Imported chats")
            self._into_folder.setChecked(bool(summary.folder()))
            self._folder.setEnabled(self._into_folder.isChecked())
        show_text(self._left_out, f"Not imported: {'; '.join(left_out)}." if left_out else "")

    def _on_imported(self, imported: Imported) -> None:
        self._imported = imported
        shown = [self._show] if imported.added or imported.restored else []
        heading = "Import finished" if imported.is_complete else "Import stopped"
        self._arrange(heading, imported.sentence(), *shown, close="Close")

    def _on_failed(self, error: KnownError) -> None:
        text = visible(str(error))
        self._arrange("The import didn’t work", text, self._choose_files, self._choose_folder, close="Close")

    def _on_show(self) -> None:
        assert self._imported is not None
        self.shown_requested.emit([*self._imported.added, *self._imported.restored])
        self.accept()

    @Slot()
    def _on_close(self) -> None:
        if self._is_running and self._close.text() == "Stop":
            self._close.setEnabled(False)
            self._transfers.cancel()
        else:
            self.reject()


def _sources_part() -> QWidget:
    part = QWidget()
    rows = [row((_name(name), 0), (label(text, "quiet", wraps=True), 1), gap=3 * SPACING) for name, text in _SOURCES]
    column(*rows, gap=SPACING, on=part)
    return part


def _name(name: str) -> QWidget:
    found = label(name)
    found.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
    found.setMinimumWidth(theme.px(120))
    return found


def _found(chats: int) -> str:
    return f"{words.count(chats, 'chat')} found"


def _contents(summary: Summary) -> str:
    """Where the chats come from, how many messages they have, and from when they are."""
    messages = words.count(summary.messages, "message")
    names = list(summary.sources)
    sources = words.listed(names)
    text = f"From {sources}, with {messages}"
    if summary.versions:
        text += f", {words.number(summary.versions)} of them in other versions"
    if summary.first is not None and summary.last is not None:
        first, last = words.date(summary.first), words.date(summary.last)
        text += f", from {first}" if first == last else f", from {first} to {last}"
    return f"{text}."


_STYLE = """
body { font-family: sans-serif; font-size: 10pt; color: black; }
h1 { font-size: 16pt; } h3 { font-size: 11pt; }
pre, code { font-family: monospace; font-size: 9pt; }
table { border-collapse: collapse; } td, th { border: 1px solid #888888; padding: 2px 4px; }
"""


_SCHEME = "formula"
_FORMULA = re.compile(
    r'<svg [^>]*?style="width:([\d.]+)em;height:([\d.]+)em;vertical-align:-([\d.]+)em"[^>]*>.*?</svg>', re.DOTALL
)
_EM = 10 * 96 / 72
"""The font size, in the pixels of Qt's rich text."""
_FINENESS = 6
"""So many dots of a formula's picture fall on such a pixel."""
_MIDDLE = 0.26
"""How far above the baseline the middle of a picture stands, in font sizes."""


class _Document(QTextDocument):
    """Loads nothing from anywhere; formulas, which Qt's rich text doesn't know, are pictures of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._pictures: list[QImage] = []
        self.setDefaultStyleSheet(_STYLE)
        self.setHtml(f"<body>{_FORMULA.sub(self._add_formula, html)}</body>")

    def _add_formula(self, found: re.Match[str]) -> str:
        formula_width, formula_height, below = (float(found[index]) for index in (1, 2, 3))
        ascent = formula_height - below
        half = max(ascent - _MIDDLE, below + _MIDDLE)
        width, height = round(formula_width * _EM), round(2 * half * _EM)
        picture = QImage(width * _FINENESS, height * _FINENESS, QImage.Format.Format_ARGB32_Premultiplied)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        top, dots = half + _MIDDLE - ascent, _EM * _FINENESS
        place = QRectF(0, top * dots, formula_width * dots, formula_height * dots)
        QSvgRenderer(QByteArray(found[0].replace("currentColor", "black").encode())).render(painter, place)
        painter.end()
        self._pictures.append(picture)
        number = len(self._pictures) - 1
        return f'<img src="{_SCHEME}:{number}" width="{width}" height="{height}" style="vertical-align: middle">'

    def loadResource(self, _kind: int, name: QUrl | str) -> object:
        """A picture of a formula, or nothing."""
        scheme, _, number = (name if isinstance(name, str) else name.toString()).partition(":")
        is_known = scheme == _SCHEME and number.isdecimal() and int(number) < len(self._pictures)
        return self._pictures[int(number)] if is_known else None


class Printing(QObject):
    """Prints one chat after another, in a thread of its own."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = Lane(self, "printing")

    def ask(self, html: str, title: str, parent: QWidget) -> None:
        """Show the system's dialog, and print ``html`` when it is accepted."""
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        printer.setDocName(file_name(title, ""))  # Qt names the file of a PDF after it
        dialog = QPrintDialog(printer, parent)
        dialog.setWindowModality(Qt.WindowModality.WindowModal)
        dialog.setOption(QPrintDialog.PrintDialogOption.PrintSelection, False)
        dialog.accepted.connect(lambda: self.print_html(html, printer))
        dialog.finished.connect(dialog.deleteLater)
        dialog.show()  # modal to its window; `open` of this class wants a slot by its name

    def print_html(self, html: str, printer: QPrinter) -> None:
        """Print, without keeping the window's thread."""
        self._lane.submit(lambda: _print(html, printer))

    def close(self) -> None:
        self._lane.close()


def _print(html: str, printer: QPrinter) -> None:
    _Document(html).print_(printer)
