"""What the tests of the Speed panel share: pairs, figures, and ways to find what is in it."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QPushButton, QWidget

from app.protocol.events import DrafterFigures, DraftFigures, Figures, KindFigures, ModelInfo, PairLoaded, Pause
from app.ui.speed.panel import SpeedPanel
from app.ui.speed.parts import KindsSection, StatusLines

T = TypeVar("T", bound=QWidget)
PAIR = PairLoaded(
    request=1,
    target=ModelInfo(path="target.gguf", name="Target"),
    draft=ModelInfo(path="draft.gguf", name="Draft"),
    default_draft_length=6,
)
ALONE = PairLoaded(request=2, target=PAIR.target, default_draft_length=6)
HEAD = PairLoaded(request=4, target=PAIR.target, head_drafter="mtp", default_draft_length=3)
OFF = PairLoaded(request=3, target=PAIR.target, drafting_off="The target cannot be rolled back.")
PAUSE = Pause(acceptance_rate=0.22, break_even_rate=0.41)
_REASON = (
    "It isn't saving time on this text: about 22% of the draft tokens are accepted, and this computer needs about "
    "41% to break even."
)
PAUSED = f"Drafting is paused · {_REASON}"
N_GRAMS_PAUSED = f"Drafting with n-grams is paused · {_REASON}"
FIGURES = Figures(
    completion_tokens=262,
    decode_tokens_per_second=74.2,
    draft=DraftFigures(
        drafted=252,
        tested=252,
        accepted=172,
        acceptance_rate=172 / 252,
        verify_passes=90,
        mean_acceptance_length=1 + 172 / 90,
        accepted_per_position=[80, 60, 32],
        tested_per_position=[90, 90, 90],
        drafters=[DrafterFigures(name="model", drafted=252, tested=252, accepted=172, verify_passes=90)],
    ),
    kinds=[KindFigures(kind="code", tokens=261, seconds=3.0, tested=252, accepted=172, verify_passes=90)],
)
HISTORY = [
    KindFigures(kind="code", tokens=1000, seconds=10.0, tested=1100, accepted=880, verify_passes=120),
    KindFigures(kind="prose", tokens=4000, seconds=80.0, tested=5000, accepted=2500, verify_passes=1500),
]
CURVE = [41.0, 55.0, 63.0, 70.0, 74.0, 77.5, 78.2, 76.0, 77.0, 71.0, 72.0, 70.0, 68.0, 66.0, 65.0, 64.0, 62.0]


def status_of(panel: SpeedPanel) -> str:
    """The status in one sentence, as of the last refresh."""
    return of_kind(panel, StatusLines).accessibleName()


def is_refreshing(panel: SpeedPanel) -> bool:
    """Whether the panel will redraw."""
    return any(
        timer.isActive() for timer in panel.findChildren(QTimer, options=Qt.FindChildOption.FindDirectChildrenOnly)
    )


def rows_of(panel: SpeedPanel) -> list[str]:
    """What the rows about kinds of text say."""
    (grid,) = of_kind(panel, KindsSection).findChildren(QGridLayout)
    items = [[grid.itemAtPosition(row, column) for column in range(3)] for row in range(grid.rowCount())]
    labels = [[item.widget() for item in row if item is not None] for row in items]
    shown = [[one.text() for one in row if isinstance(one, QLabel) and not one.isHidden()] for row in labels]
    return [" · ".join(row).replace("\u00a0", " ") for row in shown if row]


def texts(panel: SpeedPanel) -> list[str]:
    return [label.text().replace("\u00a0", " ") for label in panel.findChildren(QLabel) if label.isVisible()]


def button(panel: SpeedPanel, text: str) -> QPushButton:
    return next(found for found in panel.findChildren(QPushButton) if found.text() == text)


def box(panel: SpeedPanel, text: str) -> QCheckBox:
    return next(found for found in panel.findChildren(QCheckBox) if found.text() == text)


def of_kind(panel: SpeedPanel, kind: type[T]) -> T:
    return next(found for found in panel.findChildren(QWidget) if isinstance(found, kind))
