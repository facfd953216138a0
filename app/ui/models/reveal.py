"""Show a file in the system's file manager."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from PySide6.QtCore import QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from app.program import windows_program
from app.ui.models.library_service import LibraryService


def reveal(path: Path, library: LibraryService) -> None:
    """Open the folder of ``path``, with the file selected if the system can do that."""
    library.compute(path.is_dir, partial(_reveal, path))


def _reveal(path: Path, is_folder: bool) -> None:
    if is_folder:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
    elif sys.platform == "win32":
        # Explorer has its own syntax for this, which QProcess would quote.
        subprocess.Popen(f'"{windows_program("explorer.exe")}" /select,"{path}"')
    elif sys.platform == "darwin":
        QProcess.startDetached("/usr/bin/open", ["-R", str(path)])
    else:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path.parent)))
