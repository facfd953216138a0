"""The notices of the window: one or two sentences about something unusual, and buttons for what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app import words
from app.protocol.events import SpeedChange
from app.protocol.remote import ServerFailure
from app.settings import Pair
from app.words import visible

Kind = Literal["info", "warning", "bad"]


DISMISSING = ("dismiss", "wait")
"""The actions that get the subject of their notice, and remove it."""
PASSING = (
    "server", "crash", "settings", "measure", "export", "file", "drafting", "attachments", "blind", "scans", "better",
)  # fmt: skip
"""Subjects whose notices disappear when the user sends the next message."""


_LAST_LINES = 3


@dataclass(frozen=True)
class Notice:
    """One notice. ``actions``, as `app.ui.shell.all_actions` names them, appear as buttons in this order; they get the
    ``values``.
    """

    kind: Kind
    text: str
    actions: tuple[str, ...] = ()
    values: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        # It may contain a file name, or text from a file or a server.
        object.__setattr__(self, "text", visible(self.text))


def engine_ended(
    sentence: str, *, had_draft: bool, was_answering: bool = False, crashed_with_gpu: bool = False
) -> Notice:
    """``sentence`` says how it ended. The driver of a GPU is a likelier reason for a crash than the draft is."""
    rest = " The answer so far was saved." if was_answering else " Your chats are safe."
    if crashed_with_gpu:
        rest += " If this happens again, the reason may be the GPU's driver."
    other = ("restart_on_cpu",) if crashed_with_gpu else ("restart_plain",) if had_draft else ()
    return Notice("bad", sentence + rest, ("restart", *other, "copy_report"))


def engine_ends_too_often(sentence: str, *, had_draft: bool, crashed_with_gpu: bool = False) -> Notice:
    what, where = ("GPU", "Run them on the CPU") if crashed_with_gpu else ("computer", "Load different models")
    text = (
        f"{sentence} That was the third time in five minutes, so these models probably won't work on this {what}. "
        f"{where}, or try again."
    )
    other = "restart_plain" if had_draft else "choose_models"
    if crashed_with_gpu:
        other = "restart_on_cpu"
    return Notice("bad", text, (other, "restart", "copy_report"))


def engine_stalled(seconds: float) -> Notice:
    text = (
        f"The engine hasn't responded for {words.number(seconds)} s. You can wait or restart it; nothing will be lost."
    )
    return Notice("warning", text, ("wait", "restart"))


def load_failed(message: str) -> Notice:
    return Notice("bad", message, ("choose_models", "load_guide"))


def does_not_fit(numbers: str, *, is_loaded: bool) -> Notice:
    """``numbers`` is a sentence that says how much memory is needed and how much is free."""
    rest = " The current models stay loaded." if is_loaded else ""
    text = f"These models don't fit in the free memory: {numbers[:1].lower()}{numbers[1:]}{rest}"
    actions = ("choose_models", "load_anyway") + (("dismiss",) if is_loaded else ())
    return Notice("warning", f"{text} “Open models…” shows what would fit.", actions)


def loaded_otherwise(sentence: str) -> Notice:
    """Something had to be reduced to fit in memory; ``sentence`` says what and why."""
    return Notice("info", sentence, ("choose_models", "dismiss"))


def load_canceled() -> Notice:
    return Notice("info", "Loading was canceled. No model is loaded.", ("load_again", "choose_models"))


def server_failed(message: str, cause: ServerFailure) -> Notice:
    """A model on a server can't be used; ``message`` says why, in one or two sentences."""
    match cause:
        case "key":
            actions: tuple[str, ...] = ("enter_key", "connect_again", "load_guide")
        case "address" | "not_a_server" | "model" | "certificate":
            actions = ("choose_server", "load_guide")
        case _:
            actions = ("connect_again", "choose_server", "load_guide")
    return Notice("bad", message, actions)


def server_loading() -> Notice:
    text = "The server is loading its model, which may take a while. Slipstream connects as soon as that is done."
    return Notice("info", text, ("load_guide",))


def not_connected() -> Notice:
    text = "Connecting was canceled. No model is open."
    return Notice("info", text, ("connect_again", "choose_models", "load_guide"))


def server_stalled(seconds: float) -> Notice:
    text = (
        f"The server hasn't sent anything for {words.number(seconds)} s. It may be busy with other requests. You can "
        "wait, or stop this answer; what has arrived is kept."
    )
    return Notice("warning", text, ("wait", "cancel_answer"))


def may_be_sent(title: str, host: str) -> Notice:
    """A chat is about to go to another computer for the first time."""
    text = (
        f"To answer your message, Slipstream will send the whole chat “{title}” to {host} for the first time. Whoever "
        "runs that server can read it."
    )
    return Notice("warning", text, ("send_chat", "do_not_send"))


def answer_not_finished(cause: ServerFailure, *, has_begun: bool, can_continue: bool) -> Notice:
    """A server didn't finish an answer, which says why itself. Nothing is sent a second time without being asked to."""
    if has_begun:
        text = "The answer isn't complete. What had arrived was kept, and nothing is sent again unless you ask for it."
    else:
        text = "There is no answer yet. Your message was kept, and nothing is sent again unless you ask for it."
    if cause == "key":
        return Notice("warning", text, ("enter_key", "ask_again"))
    other = ("continue_answer",) if can_continue else ()
    return Notice("warning", text, ("ask_again", *other, "dismiss"))


def has_no_text(name: str) -> Notice:
    """A PDF file is a scan, and the loaded model sees images."""
    text = f"{name} has no text that can be read. It may be a scan, and this model can see its pages."
    return Notice("info", text, ("attach_pages", "dismiss"))


def no_model() -> Notice:
    return Notice("info", "No model is loaded. Open one to get an answer.", ("choose_models", "load_guide"))


def file_missing(name: str, *, is_loaded: bool) -> Notice:
    """``is_loaded``: other models are, and stay so."""
    if is_loaded:
        text = f"The model file {name} has been moved or deleted. The current models stay loaded."
        return Notice("bad", text, ("choose_models", "dismiss"))
    text = f"The model file {name} has been moved or deleted. Choose it again, or load the Slipstream Guide."
    return Notice("bad", text, ("choose_models", "load_guide"))


def slow_drive() -> Notice:
    text = "The model files are taking a long time to read. Their drive may be slow or disconnected."
    return Notice("info", text, ("choose_models", "load_guide"))


def not_opened(reason: str) -> Notice:
    """A file that another program asked to open can't be opened; ``reason`` is a sentence."""
    return Notice("bad", reason, ("choose_models", "dismiss"))


def guide_missing() -> Notice:
    text = "The Slipstream Guide isn't included in this copy. Open a model file to start chatting."
    return Notice("warning", text, ("choose_models",))


def draft_refused(reason: str) -> Notice:
    return Notice("warning", f"The draft model isn't used. {reason}", ("choose_models", "dismiss"))


def head_refused(reason: str) -> Notice:
    """The head can't be used; ``reason`` is the engine's sentence."""
    text = f"{reason} Answers arrive at the model's normal speed."
    return Notice("warning", text, ("choose_models", "dismiss"))


def projector_refused(reason: str) -> Notice:
    """The projector can't be used; ``reason`` is the engine's sentence."""
    return Notice("warning", f"{reason} So the model can't see images.", ("choose_models", "dismiss"))


def template_refused(reason: str) -> Notice:
    """Another chat template is used; ``reason`` is the engine's sentences."""
    return Notice("warning", reason, ("choose_models", "dismiss"))


def cannot_see(size: str = "", refused: str | None = None) -> Notice:
    """The loaded model can't see what was to be attached. ``size``: "986 MB to download" of the projector for it, if
    one is known; ``refused``: why the one in its folder isn't used.
    """
    if refused is not None:
        return Notice("warning", f"The image wasn't attached. {refused}", ("choose_models", "dismiss"))
    if size:
        text = f"To see images, this model needs a second file, its projector ({size})."
        return Notice("warning", text, ("get_projector", "dismiss"))
    text = "This model can't see images. Models that can have a second file, a projector (mmproj), in the same folder."
    return Notice("warning", text, ("choose_models", "dismiss"))


def draft_failed(reason: str, *, head: str = "", is_one_of_two: bool = False) -> Notice:
    """A draft model, or the ``head`` of this title, is no longer used in an answer; ``reason`` is the engine's
    sentence."""
    what = "The draft model failed, so this answer continued without it."
    if is_one_of_two:
        what = "Part of the drafting stopped in this answer."
    elif head:
        what = f"The {head} stopped drafting in this answer."
    return Notice("warning", f"{what} {reason}", ("dismiss",))


def slower(change: SpeedChange) -> Notice:
    """The models have become slower since an update."""
    text = (
        f"These models have been slower since {change.now} was installed: computing a token takes "
        f"{words.times(change.times)} as long as with {change.before}. Drafting has adjusted; "
        "the speed without a draft should be measured again."
    )
    return Notice("warning", text, ("measure_plain", "dismiss"))


def died_while_loading(name: str) -> Notice:
    text = f"Slipstream closed unexpectedly while loading {name}, so it wasn't loaded automatically this time."
    return Notice("warning", text, ("load_again", "choose_models"))


def unanswered() -> Notice:
    return Notice("info", "This message hasn't been answered yet.", ("answer",))


def not_saved(reason: str) -> Notice:
    return Notice("bad", reason, ("save_again",))


def chats_unavailable(reason: str) -> Notice:
    text = f"{reason} New chats will be lost when you close Slipstream."
    return Notice("bad", text, ("open_logs", "dismiss"))


def previous_crash() -> Notice:
    text = "Slipstream closed unexpectedly last time. Your chats are safe, and there is a report in the log folder."
    return Notice("info", text, ("open_logs", "dismiss"))


def exported(name: str) -> Notice:
    return Notice("info", f"The chat was exported to {name}.", ("dismiss",))


def downloaded(title: str, pair: Pair) -> Notice:
    """``pair``: what can be loaded now."""
    text = f"{title} has been downloaded and its checksum verified."
    return Notice("info", text, ("load_downloaded", "dismiss"), (pair,))


def download_stopped(title: str, reason: str) -> Notice:
    return Notice("warning", f"The download of {title} stopped. {reason}", ("show_downloads", "dismiss"))


def better_model(proposal: str) -> Notice:
    text = f"The starter model is small and often wrong. A better model that runs well on this computer: {proposal}."
    return Notice("info", text, ("get_proposed", "dismiss"))


API_SERVER_ENDED = "The API server stopped unexpectedly several times in a row."


def api_server_ended() -> Notice:
    """The process that serves other programs ended too often."""
    text = f"{API_SERVER_ENDED} Other programs can't use the model until you restart it."
    return Notice("bad", text, ("restart_api_server", "dismiss"))


def api_server_failed(reason: str) -> Notice:
    """It can't listen; ``reason`` is a sentence."""
    text = f"The API server didn't start. {reason}"
    return Notice("warning", text, ("api_server_settings", "restart_api_server", "dismiss"))


def tools_failed(sentences: str, lines: Sequence[str]) -> Notice:
    """An MCP server, or the process that runs tools, has failed; ``lines``: what it printed."""
    last = " / ".join(words.shortened(line, 200) for line in lines[-_LAST_LINES:] if line.strip())
    return Notice(
        "warning", f"{sentences} It last printed: “{last}”." if last else sentences, ("tool_settings", "dismiss")
    )


def told(text: str) -> Notice:
    """Something has been done; ``text`` says what."""
    return Notice("info", text, ("dismiss",))


def too_long(text: str, *, can_raise: bool = True) -> Notice:
    """What is attached doesn't fit in the context; ``text`` says by how much. ``can_raise``: it can be longer."""
    return Notice("warning", text, ("use_beginning", *(("raise_context",) if can_raise else ())))


def plain_text(text: str) -> Notice:
    """A notice with a text from elsewhere, such as an error message of the settings."""
    return Notice("warning", text, ("dismiss",))


class NoticeList(QObject):
    """The current notices, one per subject; a new one about the same subject replaces the old.

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
