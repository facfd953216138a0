"""The QApplication, in a process of its own: there can be one only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = """
from PySide6.QtCore import QCoreApplication, QUrl
from PySide6.QtGui import QFileOpenEvent
from app.ui.shell.qt_application import make_application
application = make_application([])
application.file_requested.connect(print)
for file in ("/Модель.gguf", QUrl("file:///Модель%202.gguf"), QUrl("https://host/x.gguf")):
    QCoreApplication.sendEvent(application, QFileOpenEvent(file))
print(application.desktopFileName())
"""


def test_files_of_the_system_are_passed_on_and_the_desktop_knows_the_app() -> None:
    command = [sys.executable, "-X", "utf8", "-c", CODE]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert result.stdout.splitlines() == [
        "/Модель.gguf",
        "/Модель 2.gguf",
        "https://host/x.gguf",
        "app.slipstream.Slipstream",
    ]
