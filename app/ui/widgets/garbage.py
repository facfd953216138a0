"""Python's garbage collector, kept to the event loop of the window's thread.

Left to itself it runs wherever Python happens to make an object, and with it the destructors of widgets:

- in another thread, which destroys widgets and other objects of Qt's there;
- in a handler that Qt calls while it goes through a list of all widgets, as for another style, font or zoom. Qt
  crashes on one that is gone.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QAbstractEventDispatcher, QCoreApplication, QObject, Slot
from PySide6.QtWidgets import QWidget


class GarbageCollector(QObject):
    """Collects garbage before the event loop waits for something to do, and at no other time.

    How often is up to the thresholds of `gc`. Exists as long as the application; Python's own collector stays off.
    """

    def __init__(self, application: QCoreApplication) -> None:
        super().__init__(application)
        gc.disable()
        # Kept, because without a reference the wrapper is deleted, and its connections with it.
        self._dispatcher = QAbstractEventDispatcher.instance()
        self._dispatcher.aboutToBlock.connect(self._on_about_to_block)

    @Slot()
    def _on_about_to_block(self) -> None:
        collect_due()


def collect_due() -> None:
    """Collect what the thresholds of `gc` ask for, as Python does. To be called in the window's thread, where neither
    Qt nor one of our handlers is in the middle of something."""
    due = [count > threshold > 0 for count, threshold in zip(gc.get_count(), gc.get_threshold(), strict=True)]
    for generation in (2, 1, 0):
        if due[generation]:
            gc.collect(generation)
            return


def delete_later(widget: QWidget) -> None:
    """`QWidget.deleteLater` for one of many: nothing of it is left for the collector.

    A widget and what it consists of refer to each other. So when it is destroyed it forgets its attributes, and those
    of the widgets in it.
    """

    def forget() -> None:
        for part in parts:
            vars(part).clear()

    parts = [widget, *widget.findChildren(QWidget)]
    widget.destroyed.connect(forget)
    widget.deleteLater()
