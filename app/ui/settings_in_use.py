"""From the settings to what uses them: the Open models dialog and the next answer; and back."""

from __future__ import annotations

from app.engine.protocol import DEFAULT_DRAFT_LENGTH, PairLoaded, Sampling
from app.settings import Settings
from app.ui.conversation import AnswerSettings
from app.ui.models.choice import OpenModelsChoice
from app.ui.pair import PairFiles


def sampling_in_use(values: Settings, pair: PairLoaded | None) -> Sampling:
    """The model's own recommendation until the user chooses otherwise."""
    return own_sampling(pair) if values.model_sampling else values.sampling


def own_sampling(pair: PairLoaded | None) -> Sampling:
    """What the loaded target recommends."""
    return pair.sampling if pair else Sampling()


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


def answer_settings(values: Settings, pair: PairLoaded | None) -> AnswerSettings:
    """How answers are written now; the pair's own draft length where the user chose none."""
    own = pair.default_draft_length if pair else DEFAULT_DRAFT_LENGTH
    return AnswerSettings(
        sampling=sampling_in_use(values, pair),
        seed=values.seed,
        max_tokens=values.longest_answer,
        stop=tuple(values.stop_strings),
        system_prompt=values.system_prompt,
        draft_length=own if values.draft_length is None else values.draft_length,
        accept=values.accept,
    )
