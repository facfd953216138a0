"""PySide6 6.12.0 drops a reference to None with each void Qt call, which kills a process on Python 3.11."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject


def test_void_calls_do_not_use_up_none() -> None:
    thing = QObject()
    before = sys.getrefcount(None)
    for _ in range(2000):
        thing.setObjectName("x")
    assert sys.getrefcount(None) > before - 1000
