"""Show a file in the system's file manager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PySide6.QtCore import QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from app.program import windows_program


def reveal(path: Path) -> None:
    """Open the folder of ``path``, with the file selected where the system can do that."""
    if path.is_dir():
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
    elif sys.platform == "win32":
        # Explorer has a syntax of its own for this, which QProcess would quote away.
        subprocess.Popen(f'"{windows_program("explorer.exe")}" /select,"{path}"')
    elif sys.platform == "darwin":
        QProcess.startDetached("/usr/bin/open", ["-R", str(path)])
    else:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path.parent)))
