"""What the window says when something is not as usual: a sentence or two, and what one can do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.models.text import visible
from app.protocol.messages import SpeedChange

Kind = Literal["info", "warning", "bad"]


class Action(enum.StrEnum):
    """What a button of a notice does; its value is what the button says."""

    RESTART = "Restart"
    RESTART_PLAIN = "Restart without draft"
    COPY_REPORT = "Copy report"
    OPEN_MODELS = "Open models…"
    LOAD_GUIDE = "Load Slipstream Guide"
    LOAD_AGAIN = "Load again"
    LOAD_ANYWAY = "Load anyway"
    OPEN_LOGS = "Open log folder"
    ANSWER = "Write the answer"
    SAVE_AGAIN = "Save again"
    MEASURE = "Measure plain speed"
    LOAD_DOWNLOADED = "Load it"
    SHOW_DOWNLOADS = "Show downloads"
    WAIT = "Wait"
    DISMISS = "Dismiss"


PASSING = ("crash", "settings", "measure", "export", "file")
"""Subjects that have been read by whoever writes the next message."""


@dataclass(frozen=True)
class Notice:
    """One notice. ``actions`` appear as buttons, in this order."""

    kind: Kind
    text: str
    actions: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        # It may name a file, or say what a file or a server said.
        object.__setattr__(self, "text", visible(self.text))


def engine_ended(sentence: str, *, had_draft: bool, was_answering: bool) -> Notice:
    """``sentence`` says how it ended."""
    rest = " The answer so far is kept." if was_answering else " Your chats are safe."
    restarts = (Action.RESTART, Action.RESTART_PLAIN) if had_draft else (Action.RESTART,)
    return Notice("bad", sentence + rest, (*restarts, Action.COPY_REPORT))


def engine_ends_too_often(sentence: str, *, had_draft: bool) -> Notice:
    text = (
        f"{sentence} That was the third time in five minutes, so this pair will probably not work here. "
        "Load other models, or try again."
    )
    other = Action.RESTART_PLAIN if had_draft else Action.OPEN_MODELS
    return Notice("bad", text, (other, Action.RESTART, Action.COPY_REPORT))


def engine_stalled(seconds: float) -> Notice:
    text = f"The engine has not reacted for {seconds:.0f} s. You can wait or restart it; nothing written is lost."
    return Notice("warning", text, (Action.WAIT, Action.RESTART))


def load_failed(message: str) -> Notice:
    return Notice("bad", message, (Action.OPEN_MODELS, Action.LOAD_GUIDE))


def does_not_fit(numbers: str, *, is_loaded: bool) -> Notice:
    """``numbers`` is a sentence with what is needed and what is free."""
    rest = " What was loaded stays." if is_loaded else ""
    text = f"The models do not fit into the memory that is free: {numbers[:1].lower()}{numbers[1:]}{rest}"
    actions = (Action.OPEN_MODELS, Action.LOAD_ANYWAY) + ((Action.DISMISS,) if is_loaded else ())
    return Notice("warning", f"{text} Open models shows what would fit.", actions)


def loaded_otherwise(sentence: str) -> Notice:
    """The plan gave something up; ``sentence`` says what and why."""
    return Notice("info", sentence, (Action.OPEN_MODELS, Action.DISMISS))


def load_cancelled() -> Notice:
    return Notice("info", "Loading was cancelled. No model is loaded.", (Action.LOAD_AGAIN, Action.OPEN_MODELS))


def no_model() -> Notice:
    return Notice("info", "No model is loaded, so there is no answer yet.", (Action.OPEN_MODELS, Action.LOAD_GUIDE))


def file_missing(name: str) -> Notice:
    text = f"The model file {name} is no longer where it was. Choose it again, or talk to the Slipstream Guide."
    return Notice("bad", text, (Action.OPEN_MODELS, Action.LOAD_GUIDE))


def slow_drive() -> Notice:
    text = "Reading the model files is taking long: their drive may be slow or unreachable. You can open others."
    return Notice("info", text, (Action.OPEN_MODELS, Action.LOAD_GUIDE))


def not_opened(reason: str) -> Notice:
    """A file that was to be opened from outside; ``reason`` is a sentence."""
    return Notice("bad", reason, (Action.OPEN_MODELS, Action.DISMISS))


def guide_missing() -> Notice:
    text = "The Slipstream Guide is not part of this copy. Open a model file to chat."
    return Notice("warning", text, (Action.OPEN_MODELS,))


def draft_refused(reason: str) -> Notice:
    return Notice("warning", f"The draft is not used. {reason}", (Action.OPEN_MODELS, Action.DISMISS))


def draft_failed(reason: str) -> Notice:
    """The draft gave up in the middle of an answer; ``reason`` is the engine's sentence."""
    return Notice("warning", f"The draft failed, so this answer went on without it. {reason}", (Action.DISMISS,))


def slower(change: SpeedChange) -> Notice:
    """The pair takes longer since an update."""
    text = (
        f"Since {change.now} this pair is slower: a plain pass takes {change.times:.1f} × as long as with "
        f"{change.before}. Drafting goes by the new figures; plain speed has to be measured again."
    )
    return Notice("warning", text, (Action.MEASURE, Action.DISMISS))


def died_while_loading(name: str) -> Notice:
    text = f"Slipstream ended while it loaded {name} the last time, so it was not loaded again by itself."
    return Notice("warning", text, (Action.LOAD_AGAIN, Action.OPEN_MODELS))


def unanswered() -> Notice:
    return Notice("info", "This message has no answer yet.", (Action.ANSWER,))


def not_saved(reason: str) -> Notice:
    return Notice("bad", reason, (Action.SAVE_AGAIN,))


def chats_unavailable(reason: str) -> Notice:
    text = f"{reason} What you write now is kept only until Slipstream is closed."
    return Notice("bad", text, (Action.OPEN_LOGS, Action.DISMISS))


def previous_crash() -> Notice:
    text = "Slipstream ended unexpectedly the last time. Your chats are here; a report is in the log folder."
    return Notice("info", text, (Action.OPEN_LOGS, Action.DISMISS))


def exported(name: str) -> Notice:
    return Notice("info", f"The chat was exported to {name}.", (Action.DISMISS,))


def downloaded(title: str) -> Notice:
    text = f"{title} is downloaded, and its checksum is right."
    return Notice("info", text, (Action.LOAD_DOWNLOADED, Action.DISMISS))


def download_stopped(title: str, reason: str) -> Notice:
    return Notice("warning", f"The download of {title} stopped. {reason}", (Action.SHOW_DOWNLOADS, Action.DISMISS))


def busy_trying() -> Notice:
    text = "This pair is new and is being tried out, which measures its plain speed too. That takes some seconds."
    return Notice("info", text, (Action.DISMISS,))


def busy_comparing() -> Notice:
    text = "Plain speed was not measured: two runs at once would slow each other down. Try again after the comparison."
    return Notice("info", text, (Action.DISMISS,))


def told(text: str) -> Notice:
    """Something was done; ``text`` says what."""
    return Notice("info", text, (Action.DISMISS,))


def plain_text(text: str) -> Notice:
    """A notice that somebody else worded, such as the settings."""
    return Notice("warning", text, (Action.DISMISS,))


class NoticeList(QObject):
    """The notices in force, one a subject; a new one about the same subject replaces the old.

    Signals:
        changed: The notices to show by subject, oldest first.
    """

    changed = Signal(object)  # a dict signal would sort it

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._notices: dict[str, Notice] = {}

    def notices(self) -> dict[str, Notice]:
        return dict(self._notices)

    def show(self, subject: str, notice: Notice) -> None:
        if self._notices.get(subject) != notice:
            self._notices.pop(subject, None)
            self._notices[subject] = notice
            self.changed.emit(self.notices())

    def remove(self, *subjects: str) -> None:
        removed = [self._notices.pop(subject, None) for subject in subjects]
        if any(removed):
            self.changed.emit(self.notices())
