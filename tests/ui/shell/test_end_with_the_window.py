"""The app as a process ends with its main window, whatever else there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 60

CODE = """
import atexit, sys, threading
qt_is_gone, is_done = threading.Event(), threading.Event()
atexit.register(lambda: (qt_is_gone.set(), is_done.wait()))  # called after PySide's, which was registered later
from PySide6.QtWidgets import QWidget
from app.ui.shell import application
from app.ui.widgets.tasks import Lane

class Application(application.Application):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.forgotten = QWidget()
        self.forgotten.show()
        Lane(self, "late").submit(qt_is_gone.wait).add_done_callback(lambda _: is_done.set())

application.Application = Application
sys.exit(application.run(["--close-when-ready"]))
"""


@pytest.mark.usefixtures("guide_pair")
def test_the_app_ends_with_its_window_in_spite_of_another_window_and_a_task_that_runs(home: Path) -> None:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "SLIPSTREAM_HOME": str(home)}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
