"""The status sentence in every situation."""

from __future__ import annotations

import pytest

from app.protocol.messages import DraftFigures, Figures, ModelInfo, PairLoaded, Pause
from app.ui.speed import wording
from app.ui.speed.wording import Asked, Situation, status

TARGET = ModelInfo(path="target.gguf", name="Target")
DRAFT = ModelInfo(path="draft.gguf", name="Draft")
PAIR = PairLoaded(request=1, target=TARGET, draft=DRAFT)
ALONE = PairLoaded(request=1, target=TARGET)
REFUSED = PairLoaded(request=1, target=TARGET, draft_refused="The vocabularies differ at token 17")
DRAFTED = Figures(
    decode_tokens_per_second=74.2,
    draft=DraftFigures(tested=252, accepted=172, acceptance_rate=0.6825, verify_passes=90, mean_acceptance_length=2.91),
)
PLAIN = Figures(decode_tokens_per_second=41.0)
ASKED = Asked("auto", ("model", "ngram"))
OFF = PairLoaded(
    request=1,
    target=TARGET,
    draft_refused="It cannot be rolled back.",
    drafting_off="It cannot be rolled back",
)
PAUSE = Pause(acceptance_rate=0.22, break_even_rate=0.41)


@pytest.mark.parametrize(
    ("situation", "sentence", "mood"),
    [
        (Situation(), "No models open · Open a target model, and a draft model if you have one.", "plain"),
        (
            Situation(engine_state="no model"),
            "No models open · Open a target model, and a draft model if you have one.",
            "plain",
        ),
        (Situation(engine_state="loading 40 %"), "Loading 40 %", "plain"),
        (Situation(engine_state="stopped"), "Engine stopped · The chat says why, and restarts it.", "bad"),
        (
            Situation(pair=PAIR, draft_length=5),
            "Draft on · Figures come with the next answer · up to 5 guesses a pass",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=1, answering=True, figures=Figures()),
            "Draft on · Reading the chat · up to 1 guess a pass",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=41.0),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 1.8× plain",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=100.0),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 0.7× plain"
            " · slower than plain here: try draft length Auto",
            "warning",
        ),
        (
            Situation(pair=PAIR, figures=DRAFTED, plain_speed=100.0),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s · 0.7× plain"
            " · slower than plain here: measure plain speed again",
            "warning",
        ),
        (Situation(pair=PAIR), "Draft on · Figures come with the next answer · as many guesses as pay", "good"),
        (
            Situation(pair=PAIR, answering=True, figures=Figures()),
            "Draft on · Reading the chat · as many guesses as pay",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=0),
            "Draft off · Draft length is 0: the target answers alone.",
            "plain",
        ),
        (Situation(pair=ALONE, draft_length=0), "Draft off · Draft length is 0: the target answers alone.", "plain"),
        (Situation(pair=PAIR, drafter="none"), "Draft off · No drafter is chosen: the target answers alone.", "plain"),
        (Situation(pair=PAIR, draft_length=0, figures=PLAIN), "Draft off · 41 tok/s", "plain"),
        (
            Situation(pair=PAIR, draft_length=0, asked=ASKED, figures=DRAFTED),
            "Draft off · From the next answer on, the target answers alone.",
            "plain",
        ),
        (
            Situation(pair=ALONE, draft_length=5),
            "n-grams on · Guesses come from the chat itself. A small draft model of the same family helps more.",
            "good",
        ),
        (
            Situation(pair=ALONE, answering=True, figures=Figures()),
            "n-grams on · Reading the chat · as many guesses as pay",
            "good",
        ),
        (Situation(pair=ALONE, figures=PLAIN), "n-grams on · nothing to guess from yet · 41 tok/s", "good"),
        (Situation(pair=ALONE, figures=DRAFTED), "n-grams on · 68 % kept · 2.9 tokens a pass · 74 tok/s", "good"),
        (
            Situation(pair=PAIR, drafter="ngram", figures=DRAFTED),
            "n-grams on · 68 % kept · 2.9 tokens a pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=0, asked=ASKED, figures=DRAFTED, answering=True),
            "Draft on · From the next answer on, the target answers alone.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="none", asked=Asked(0, ()), figures=PLAIN),
            "Draft off · 41 tok/s",
            "plain",
        ),
        (
            Situation(pair=PAIR, draft_length=5, asked=Asked(0, ()), figures=PLAIN, answering=True),
            "Draft off · From the next answer on, up to 5 guesses a pass.",
            "plain",
        ),
        (
            Situation(pair=PAIR, asked=Asked(0, ()), figures=PLAIN),
            "Draft on · From the next answer on, as many guesses as pay.",
            "good",
        ),
        (
            Situation(pair=PAIR, draft_length=7, asked=Asked(5, ASKED.drafters), figures=DRAFTED),
            "Draft on · From the next answer on, up to 7 guesses a pass.",
            "good",
        ),
        (
            Situation(pair=PAIR, asked=Asked(5, ASKED.drafters), figures=DRAFTED, plain_speed=100.0, answering=True),
            "Draft on · From the next answer on, as many guesses as pay.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="chain", asked=ASKED, figures=DRAFTED),
            "Draft on · 68 % kept · 2.9 tokens a pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=PAIR, asked=Asked("auto", ("ngram",)), figures=PLAIN, answering=True),
            "n-grams on · From the next answer on, the draft model and n-grams guess.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED),
            "n-grams on · From the next answer on, n-grams guess alone.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="model", asked=ASKED, figures=DRAFTED),
            "Draft on · From the next answer on, the draft model guesses alone.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, answering=True),
            "Draft on · From the next answer on, n-grams guess alone.",
            "good",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, answering=True, paused=PAUSE),
            "Draft paused · From the next answer on, n-grams guess alone.",
            "plain",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, paused=PAUSE),
            "n-grams on · From the next answer on, n-grams guess alone.",
            "good",
        ),
        (
            Situation(pair=OFF, figures=PLAIN, asked=Asked("auto", ())),
            "Draft off · It cannot be rolled back. The target answers alone.",
            "plain",
        ),
        (
            Situation(pair=REFUSED, figures=Figures(), answering=True),
            "Draft refused · The vocabularies differ at token 17. n-grams help instead.",
            "warning",
        ),
        (
            Situation(pair=REFUSED, figures=DRAFTED, answering=True),
            "n-grams on · 68 % kept · 2.9 tokens a pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=REFUSED, figures=PLAIN, paused=PAUSE),
            "n-grams paused: on this text they cost more than they save (22 % kept, needs 41 %)",
            "plain",
        ),
        (
            Situation(pair=REFUSED, figures=PLAIN),
            "Draft refused · The vocabularies differ at token 17. n-grams help instead.",
            "warning",
        ),
        (
            Situation(pair=REFUSED, draft_length=0, figures=PLAIN),
            "Draft refused · The vocabularies differ at token 17. The target answers alone.",
            "warning",
        ),
        (
            Situation(pair=PAIR, figures=DRAFTED, paused=PAUSE),
            "Draft paused: on this text it costs more than it saves (22 % kept, needs 41 %)",
            "plain",
        ),
        (
            Situation(pair=ALONE, figures=DRAFTED, paused=PAUSE),
            "n-grams paused: on this text they cost more than they save (22 % kept, needs 41 %)",
            "plain",
        ),
        (
            Situation(pair=PAIR, paused=Pause(acceptance_rate=0.406, break_even_rate=0.414)),
            "Draft paused: on this text it costs more than it saves (40.6 % kept, needs 41.4 %)",
            "plain",
        ),
        (
            Situation(pair=PAIR, draft_length=5, asked=ASKED, paused=PAUSE),
            "Draft paused · From the next answer on, up to 5 guesses a pass.",
            "plain",
        ),
        (
            Situation(pair=PAIR, draft_length=0, asked=ASKED, paused=PAUSE, figures=DRAFTED),
            "Draft off · From the next answer on, the target answers alone.",
            "plain",
        ),
        (Situation(pair=PAIR, failure="It ran out of memory."), "Engine stopped · It ran out of memory.", "bad"),
    ],
)
def test_status_sentence(situation: Situation, sentence: str, mood: str) -> None:
    found = status(situation)
    assert found.sentence == sentence
    assert found.mood == mood


def test_a_pause_is_explained_with_its_figures_and_what_passes_cost() -> None:
    now = Situation(pair=PAIR, paused=PAUSE, plain_pass=0.0081, drafted_pass=0.0194)
    why = status(now).why.replace("\u00a0", " ")
    for figure in ("Kept is 22 %", "Needed is 41 %", "19.4 ms with its guesses", "8.1 ms without"):
        assert figure in why
    assert " ms" not in status(Situation(pair=PAIR, paused=PAUSE, plain_pass=0.0081)).why
    # Nothing to end where the user has done so, or where nothing is paused.
    assert not status(Situation(pair=PAIR, draft_length=5, asked=ASKED, paused=PAUSE)).why
    assert not status(Situation(pair=PAIR, figures=DRAFTED)).why


@pytest.mark.parametrize(
    ("pause", "reason"),
    [
        (Pause(acceptance_rate=0.6, break_even_rate=0.6), "just under what pays here"),
        (Pause(acceptance_rate=0.6, break_even_rate=0.5), "just under what pays here"),
        (Pause(acceptance_rate=0.6001, break_even_rate=0.6002), "just under what pays here"),
        (Pause(acceptance_rate=0.6, break_even_rate=1.0), "No share of kept guesses would pay here"),
    ],
)
def test_a_pause_needs_nothing_where_more_kept_guesses_would_not_help(pause: Pause, reason: str) -> None:
    found = status(Situation(pair=PAIR, paused=pause))
    assert found.sentence == "Draft paused: on this text it costs more than it saves (60 % kept)"
    assert reason in found.why
    assert "Needed" not in found.why
    assert reason not in status(Situation(pair=PAIR, paused=PAUSE)).why


def test_no_speed_up_without_a_baseline() -> None:
    assert Situation(figures=DRAFTED).speed_up is None
    assert Situation(figures=Figures(), plain_speed=41.0).speed_up is None
    assert Situation(figures=DRAFTED, plain_speed=37.1).speed_up == pytest.approx(2.0)


def test_definitions_are_never_taken_for_markup() -> None:
    for text in wording.HELP.values():
        assert "<" not in text
