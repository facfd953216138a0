"""The section of the Open models dialog for the chat template: the model's own, a general one or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QComboBox, QFileDialog, QWidget

from app.models.text import printable
from app.protocol.options import TEMPLATE_TITLES
from app.ui.models.choice import OpenModelsChoice
from app.ui.widgets.controls import explain, guard_wheel, label
from app.ui.widgets.forms import FIELD_MARGINS
from app.ui.widgets.layouts import LEFT, column
from app.ui.widgets.questions import open_in_folder
from app.ui.widgets.theme import SPACING

_HELP = (
    "How a chat is written as text for the model. Its own template is right, unless answers make no sense or don't "
    "end: some files have a wrong one, or none. Your own file must contain Jinja source."
)
_OWN = "The model's own"
_OTHER_FILE = "\0"
"""Stands for a file that is still to be chosen."""


class TemplateFields(QWidget):
    """Shows `OpenModelsChoice.template` and lets the user change it."""

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__()
        self._changed = changed
        self._choice = ""
        self.box = QComboBox()
        self.box.setAccessibleName("Chat template")
        guard_wheel(self.box)
        self.box.addItem(_OWN, "")
        for name, title in TEMPLATE_TITLES.items():
            self.box.addItem(title, name)
        self.box.addItem("File…", _OTHER_FILE)
        explain(self.box, _HELP)
        parts = column((self.box, LEFT), label(_HELP, "quiet", wraps=True), gap=SPACING, on=self)
        parts.setContentsMargins(*FIELD_MARGINS)
        self.box.activated.connect(self._on_activated)

    def show_choice(self, choice: OpenModelsChoice) -> None:
        self.show_template(choice.template)

    def show_template(self, template: str) -> None:
        """``template``: as `OpenModelsChoice.template`."""
        if self.box.findData(template) < 0:
            self.box.insertItem(self.box.count() - 1, printable(Path(template).name, 40), template)
        self._choice = template
        self.box.setCurrentIndex(self.box.findData(template))
        self._changed()

    def apply_to(self, choice: OpenModelsChoice) -> OpenModelsChoice:
        """``choice`` with what is set here."""
        return replace(choice, template=self._choice)

    def summary(self) -> str:
        text = self.box.currentText()
        return text if self._choice else text[0].lower() + text[1:]

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        if (template := str(self.box.itemData(index))) != _OTHER_FILE:
            self.show_template(template)
            return
        self.show_template(self._choice)
        filters = "Chat templates (*.jinja *.jinja2 *.j2 *.txt *.json);;All files (*)"
        dialog = QFileDialog(self, "Choose a chat template", filter=filters)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.show_template)
        open_in_folder(dialog, "" if self._choice in TEMPLATE_TITLES else str(Path(self._choice).parent))
