"""What is compared: an answer of a chat that is written again, or a set of prompts; how it was made, and its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from app.chats.model import StoredMessage
from app.compare import report as reports
from app.compare.prompts import Prompt
from app.compare.results import Report, Setup
from app.compare.setup import hashed, setup_of
from app.compare.steps import Task
from app.errors import KnownError
from app.protocol.answering import AnswerSettings
from app.protocol.commands import generate
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from app.storage.files import write_export
from app.ui.chat.conversation import conversation
from app.ui.chat.footer import figures_of
from app.ui.chat.live_answer import asked_with
from app.ui.context import AppContext
from app.ui.engine import drafters
from app.ui.engine.pair_names import has_written

KIND = "chat"
"""Marks a prompt that comes from one of the user's chats."""


class RepeatedAnswer(NamedTuple):
    """An answer to be compared. ``notes``: what will be different, for the user. ``on_server``: not by our engine."""

    task: Task
    notes: Sequence[str] = ()
    on_server: bool = False


class SetChoice(NamedTuple):
    """A set of prompts to compare. ``path`` is the file it came from."""

    prompts: list[Prompt]
    path: Path
    repeats: int
    longest: int


class Snapshot(NamedTuple):
    """How a comparison was made: another pair may be loaded when it is exported."""

    setup: Setup
    """Without the models' hashes, which take time."""
    pair: PairLoaded

    @classmethod
    def now(cls, ctx: AppContext, first: Task, choice: SetChoice | None) -> Snapshot:
        """``first``: the first task; ``choice``: the prompt set, if it is one. Raises `KnownError` if the file of
        prompts is gone."""
        pair, files = ctx.loader.pair(), ctx.loader.files()
        assert pair is not None
        setup = setup_of(
            engine=ctx.engine.description(),
            devices=ctx.engine.devices(),
            pair=pair,
            settings=files.settings if files else LoadSettings(),
            command=first.command,
            repeat=choice.repeats if choice else 1,
            prompt_file=choice.path if choice else None,
        )
        return cls(setup, pair)

    def export(self, report: Report, path: Path, picture: bytes, should_stop: Callable[[], bool]) -> None:
        """Write a report, or its ``picture``. Takes time, because model files are hashed. Raises `KnownError`."""
        if not picture:
            hashed_setup = hashed(self.setup, self.pair, should_stop)
            report = msgspec.structs.replace(report, setup=hashed_setup)
        try:
            write_export(path, picture or reports.encoded(report, path.suffix.lower()))
        except OSError as error:
            raise KnownError(f"The comparison couldn't be exported to {path}: {error.strerror or error}.") from error


@dataclass(frozen=True)
class Subject:
    """The last answer of a branch of a chat, or the ``task`` of a prompt of a set."""

    branch: Sequence[StoredMessage] = ()
    is_private: bool = False
    """Whether it belongs to a temporary chat, and is deleted with it."""
    task: Task | None = None

    @property
    def chat_id(self) -> str | None:
        return self.branch[-1].chat_id if self.branch else None

    def asked(self, now: AnswerSettings, pair: PairLoaded | None) -> RepeatedAnswer | None:
        """How to have ``pair`` write the answer again; ``None`` if there is no question before it.

        ``now`` is used if the answer doesn't say how it was written.
        """
        if self.task is not None:
            return RepeatedAnswer(self.task)
        *before, answer = self.branch
        if answer.role != "assistant" or not any(message.role == "user" for message in before):
            return None
        settings = asked_with(answer) or now
        notes = []
        if pair is not None and (writer := _other_writer(answer, pair)):
            notes.append(
                f"This answer was written by another pair ({writer}). Both runs use the pair that is loaded now."
            )
        if settings.draft_length == 0 or settings.drafter == "none":
            settings = msgspec.structs.replace(settings, draft_length="auto", drafter="auto")
            notes.append("This answer was written without a draft. The run with a draft uses draft length Auto.")
        messages = conversation(before, settings.system_prompt).messages
        command = generate(
            settings,
            messages,
            drafter=drafters.usable(settings.drafter, pair),
            thinking=pair.usable_thinking(settings.thinking) if pair else "",
            max_tokens=_limit(answer, settings),
            seed=next((seed for seed in (answer.seed, settings.seed) if seed is not None), 0),
            private=self.is_private,
        )
        is_remote = pair is not None and pair.remote is not None
        return RepeatedAnswer(Task(Prompt(kind=KIND, messages=messages), command), notes, is_remote)


def _other_writer(answer: StoredMessage, pair: PairLoaded) -> str:
    """Who wrote an answer, if it wasn't ``pair``."""
    draft, had_head = answer.settings.get("draft"), answer.settings.get("mtp_head") is True
    same_draft = draft in pair.draft.names if pair.draft else draft is None
    if has_written(pair, answer.pair) and same_draft and had_head == pair.has_head:
        return ""
    if isinstance(draft, str):
        return f"{answer.author} with the draft {draft}{' and its MTP head' if had_head else ''}"
    return f"{answer.author} with its MTP head" if had_head else f"{answer.author} without a draft"


def _limit(answer: StoredMessage, settings: AnswerSettings) -> int | None:
    """An answer that was stopped is written again up to the same length."""
    if answer.status == "complete":
        return settings.max_tokens
    return figures_of(answer.figures).completion_tokens or len(answer.provenance) or settings.max_tokens
