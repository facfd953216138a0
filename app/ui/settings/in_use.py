"""From the settings to what uses them: the Open models dialog and the next answer; and back."""

from __future__ import annotations

from dataclasses import replace

from app.protocol.messages import PairLoaded, Sampling
from app.settings import Pair, Settings
from app.ui.chat.conversation import AnswerSettings
from app.ui.engine import drafters
from app.ui.engine.pair_files import PairFiles, guide_files, is_guide
from app.ui.models.choice import OpenModelsChoice


def sampling_in_use(values: Settings, pair: PairLoaded | None) -> Sampling:
    """The model's own recommendation until the user chooses otherwise."""
    return own_sampling(pair) if values.model_sampling else values.sampling


def own_sampling(pair: PairLoaded | None) -> Sampling:
    """What the loaded target recommends."""
    return pair.sampling if pair else Sampling()


def files_at_start(values: Settings) -> PairFiles:
    """The pair that was loaded last, or the bundled one."""
    if values.last_pair is None:
        return replace(guide_files(), settings=values.load)
    return PairFiles(values.last_pair.target, values.last_pair.draft, values.load)


def choice_in_use(values: Settings, files: PairFiles | None, pair: PairLoaded | None) -> OpenModelsChoice:
    """What the dialog begins with."""
    return OpenModelsChoice(
        target=files.target if files else "",
        draft=files.draft if files else None,
        load=files.settings if files else values.load,
        sampling=sampling_in_use(values, pair),
        seed=values.seed,
        max_tokens=values.longest_answer,
        stop=list(values.stop_strings),
        system_prompt=values.system_prompt,
        accept=values.accept,
    )


def keep_choice(values: Settings, choice: OpenModelsChoice, pair: PairLoaded | None) -> PairFiles:
    """Put what the dialog ends with into the settings; returns what is to be loaded, if it must be."""
    values.sampling = choice.sampling
    values.model_sampling = choice.sampling == own_sampling(pair)
    values.seed = choice.seed
    values.longest_answer = choice.max_tokens
    values.stop_strings = list(choice.stop)
    values.system_prompt = choice.system_prompt
    values.accept = choice.accept
    return PairFiles(choice.target, choice.draft, choice.load)


def keep_opened(values: Settings, files: PairFiles) -> None:
    """Put the pair that was loaded into the settings: it is the one to begin with next time."""
    values.load = files.settings
    if is_guide(files.target):
        values.last_pair = None
    else:
        values.remember_pair(Pair(files.target, files.draft))


def answer_settings(values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How answers are written now; a drafter the pair does not have is left for the automatic choice."""
    return AnswerSettings(
        sampling=sampling_in_use(values, pair),
        seed=values.seed,
        max_tokens=values.longest_answer,
        stop=tuple(values.stop_strings),
        system_prompt=values.system_prompt,
        draft_length="auto" if values.draft_length is None else values.draft_length,
        drafter=drafters.usable(values.drafter, pair),
        propose=values.propose,
        accept=values.accept,
    )
