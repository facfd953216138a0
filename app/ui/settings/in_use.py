"""Between the settings and what uses them: what is loaded, the next answer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from app.chats.settings import ChatSettings
from app.models.hub.recommended import recommended
from app.models.starter import starter_file
from app.protocol.events import PairLoaded
from app.protocol.remote import RemoteModel
from app.settings import Pair, Settings
from app.ui.chat.conversation import AnswerSettings
from app.ui.engine import drafters
from app.ui.engine.pair_files import PairFiles, guide_files, is_guide


def files_at_start(values: Settings) -> PairFiles:
    """The pair that was loaded last, or the bundled one."""
    if values.last_pair is None:
        return guide_to_load(values)
    return pair_to_load(values, values.last_pair)


def follow_starter(values: Settings) -> None:
    """An AppImage is in another folder at each start, and its starter model, which may have been in use, with it."""
    if (file := starter_file()) is None:
        return
    for was in [Path(pair.target) for pair in (*values.recent_pairs, values.last_pair) if pair is not None]:
        if was.name == file.name and was.parent.name.endswith("starter") and not os.path.isfile(was):  # noqa: PTH113
            values.models_moved(was.parent, file.parent)


def guide_to_load(values: Settings) -> PairFiles:
    """The bundled pair, loaded as it was last time."""
    guide = guide_files()
    template = values.template_for(guide.target)
    return replace(guide, settings=values.load_for(guide.target), template=template)


def pair_to_load(values: Settings, pair: Pair) -> PairFiles:
    """A remembered pair, loaded as its target was last time, or a model on a server."""
    if pair.server:
        return PairFiles(pair.target, server=pair.server)
    return files_to_load(values, pair.target, pair.draft)


def files_to_load(values: Settings, target: str, draft: str | None) -> PairFiles:
    """This pair, loaded as its target was last time."""
    template = values.template_for(target)
    return PairFiles(target, draft, values.load_for(target), values.head_for(target), template)


def keep_opened(values: Settings, files: PairFiles) -> None:
    """Put the pair that was loaded into the settings: the next start uses it, loaded in the same way."""
    if files.for_once:
        return
    if files.server:
        values.remember_pair(Pair(files.target, server=files.server))
        return
    values.remember_load(files.target, files.settings)
    values.remember_head(files.target, files.head)
    values.remember_template(files.target, files.template)
    if is_guide(files.target):
        values.last_pair = None
    else:
        values.remember_pair(Pair(files.target, files.draft))


def answer_settings(chat: ChatSettings, values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How the next answer of a chat is written; the automatic choice or the model's default
    replaces what the pair doesn't have."""
    found = recommended(pair, chat.thinking)
    settings = AnswerSettings(
        sampling=chat.sampling.over(found.sampling),
        seed=chat.seed,
        max_tokens=chat.max_tokens,
        stop=tuple(chat.stop),
        system_prompt=chat.system_prompt,
        overflow=chat.overflow,
        draft_length="auto" if values.draft_length is None else values.draft_length,
        drafter=drafters.usable(chat.drafter, pair),
        propose=values.propose,
        accept=values.accept,
        thinking=found.thinking,
        thinking_budget=chat.thinking_budget,
        format=chat.format(),
    )
    return settings if pair is None or pair.remote is None else _of_server(settings, chat, pair.remote)


def _of_server(settings: AnswerSettings, chat: ChatSettings, remote: RemoteModel) -> AnswerSettings:
    """The server decides how it drafts, and what the user didn't choose is left to it."""
    sampling, wanted = chat.sampling, settings.format
    return replace(
        settings,
        draft_length="auto",
        drafter="none" if settings.drafter == "none" and remote.can_switch_drafting else "auto",
        format=wanted if wanted is not None and wanted.kind in remote.formats else None,
        chosen=tuple(key for key in sampling.__struct_fields__ if getattr(sampling, key) is not None),
    )
