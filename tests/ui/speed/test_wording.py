"""The status sentence in every situation."""

from __future__ import annotations

import msgspec
import pytest

from app.protocol.events import DraftFigures, Figures, ModelInfo, PairLoaded, Pause
from app.protocol.remote import RemoteModel, Server
from app.ui.speed import wording
from app.ui.speed.wording import HELP, Asked, Situation, status
from tests.ui.speed.parts import N_GRAMS_PAUSED, PAUSED

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


WRITTEN = "68% accepted · 2.9 tokens per pass · 74 tok/s"
NEXT = "Starting with the next answer"
DIFFER = "The vocabularies differ at token 17"
PLAINLY = "so answers are written without a draft."
SENTENCES: dict[str, list[tuple[Situation, str]]] = {
    "plain": [
        (Situation(), "No model open · Open a target model, plus a draft model if you have one."),
        (
            Situation(engine_state="no model"),
            "No model open · Open a target model, plus a draft model if you have one.",
        ),
        (Situation(engine_state="loading 40%"), "Loading 40%"),
        (Situation(pair=PAIR, draft_length=0), f"Drafting is off · Draft length is 0, {PLAINLY}"),
        (Situation(pair=ALONE, draft_length=0), f"Drafting is off · Draft length is 0, {PLAINLY}"),
        (Situation(pair=PAIR, drafter="none"), f"Drafting is off · No drafter is chosen, {PLAINLY}"),
        (Situation(pair=PAIR, draft_length=0, figures=PLAIN), "Drafting is off · 41 tok/s"),
        (Situation(pair=PAIR, draft_length=0, asked=ASKED, figures=DRAFTED), f"Drafting is off · {NEXT}: no drafting."),
        (Situation(pair=PAIR, drafter="none", asked=Asked(0, ()), figures=PLAIN), "Drafting is off · 41 tok/s"),
        (
            Situation(pair=PAIR, draft_length=5, asked=Asked(0, ()), figures=PLAIN, answering=True),
            f"Drafting is off · {NEXT}: up to 5 draft tokens per pass.",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, answering=True, paused=PAUSE),
            f"Drafting is paused · {NEXT}: only n-grams.",
        ),
        (Situation(pair=OFF, figures=PLAIN, asked=Asked("auto", ())), "No drafting · It cannot be rolled back."),
        (Situation(pair=REFUSED, figures=PLAIN, paused=PAUSE), N_GRAMS_PAUSED),
        (Situation(pair=PAIR, figures=DRAFTED, paused=PAUSE), PAUSED),
        (Situation(pair=ALONE, figures=DRAFTED, paused=PAUSE), N_GRAMS_PAUSED),
        (
            Situation(pair=PAIR, paused=Pause(acceptance_rate=0.406, break_even_rate=0.414)),
            PAUSED.replace("22%", "40.6%").replace("41%", "41.4%"),
        ),
        (
            Situation(pair=PAIR, draft_length=5, asked=ASKED, paused=PAUSE),
            f"Drafting is paused · {NEXT}: up to 5 draft tokens per pass.",
        ),
        (
            Situation(pair=PAIR, draft_length=0, asked=ASKED, paused=PAUSE, figures=DRAFTED),
            f"Drafting is off · {NEXT}: no drafting.",
        ),
    ],
    "bad": [
        (Situation(engine_state="stopped"), "Engine stopped · The chat says why and can restart it."),
        (Situation(pair=PAIR, failure="It ran out of memory."), "Engine stopped · It ran out of memory."),
    ],
    "warning": [
        (
            Situation(pair=PAIR, asked=ASKED, figures=DRAFTED, stopped="The draft ran out of memory"),
            "Draft model stopped in this answer · The draft ran out of memory.",
        ),
        (
            Situation(
                pair=msgspec.structs.replace(PAIR, head_drafter="mtp"),
                asked=Asked("auto", ("model", "mtp", "ngram")),
                figures=DRAFTED,
                stopped="The draft ran out of memory",
            ),
            "Part of the drafting stopped in this answer · The draft ran out of memory.",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=100.0),
            f"Drafting · {WRITTEN} · 0.7× as fast · slower than without a draft: try draft length Auto",
        ),
        (
            Situation(pair=PAIR, figures=DRAFTED, plain_speed=100.0),
            f"Drafting · {WRITTEN} · 0.7× as fast · slower than without a draft: try measuring that again",
        ),
        (
            Situation(pair=REFUSED, figures=Figures(), answering=True),
            f"Draft model not used · {DIFFER}. N-grams are used instead.",
        ),
        (Situation(pair=REFUSED, figures=PLAIN), f"Draft model not used · {DIFFER}. N-grams are used instead."),
        (
            Situation(pair=REFUSED, draft_length=0, figures=PLAIN),
            f"Draft model not used · {DIFFER}. Answers are written without a draft.",
        ),
    ],
    "good": [
        (
            Situation(pair=PAIR, draft_length=5),
            "Drafting · Figures appear with the next answer · up to 5 draft tokens per pass",
        ),
        (
            Situation(pair=PAIR, draft_length=1, answering=True, figures=Figures()),
            "Drafting · Processing the prompt · up to 1 draft token per pass",
        ),
        (
            Situation(pair=PAIR, draft_length=5, figures=DRAFTED, plain_speed=41.0),
            f"Drafting · {WRITTEN} · 1.8× faster",
        ),
        (Situation(pair=PAIR, draft_length=5, figures=DRAFTED), f"Drafting · {WRITTEN}"),
        (Situation(pair=PAIR), "Drafting · Figures appear with the next answer · draft length Auto"),
        (
            Situation(pair=PAIR, answering=True, figures=Figures()),
            "Drafting · Processing the prompt · draft length Auto",
        ),
        (
            Situation(pair=ALONE, draft_length=5),
            "Drafting with n-grams · Draft tokens are taken from the chat itself."
            " A small draft model of the same family helps more.",
        ),
        (
            Situation(pair=ALONE, answering=True, figures=Figures()),
            "Drafting with n-grams · Processing the prompt · draft length Auto",
        ),
        (Situation(pair=ALONE, figures=PLAIN), "Drafting with n-grams · no matches in the chat yet · 41 tok/s"),
        (Situation(pair=ALONE, figures=DRAFTED), f"Drafting with n-grams · {WRITTEN}"),
        (Situation(pair=PAIR, drafter="ngram", figures=DRAFTED), f"Drafting with n-grams · {WRITTEN}"),
        (
            Situation(pair=PAIR, draft_length=0, asked=ASKED, figures=DRAFTED, answering=True),
            f"Drafting · {NEXT}: no drafting.",
        ),
        (Situation(pair=PAIR, asked=Asked(0, ()), figures=PLAIN), f"Drafting · {NEXT}: draft length Auto."),
        (
            Situation(pair=PAIR, draft_length=7, asked=Asked(5, ASKED.drafters), figures=DRAFTED),
            f"Drafting · {NEXT}: up to 7 draft tokens per pass.",
        ),
        (
            Situation(pair=PAIR, asked=Asked(5, ASKED.drafters), figures=DRAFTED, plain_speed=100.0, answering=True),
            f"Drafting · {NEXT}: draft length Auto.",
        ),
        (Situation(pair=PAIR, drafter="chain", asked=ASKED, figures=DRAFTED), f"Drafting · {WRITTEN}"),
        (
            Situation(pair=PAIR, asked=Asked("auto", ("ngram",)), figures=PLAIN, answering=True),
            f"Drafting with n-grams · {NEXT}: the draft model and n-grams.",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED),
            f"Drafting with n-grams · {NEXT}: only n-grams.",
        ),
        (
            Situation(pair=PAIR, drafter="model", asked=ASKED, figures=DRAFTED),
            f"Drafting · {NEXT}: only the draft model.",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, answering=True),
            f"Drafting · {NEXT}: only n-grams.",
        ),
        (
            Situation(pair=PAIR, drafter="ngram", asked=ASKED, figures=DRAFTED, paused=PAUSE),
            f"Drafting with n-grams · {NEXT}: only n-grams.",
        ),
        (Situation(pair=REFUSED, figures=DRAFTED, answering=True), f"Drafting with n-grams · {WRITTEN}"),
    ],
}


@pytest.mark.parametrize(
    ("situation", "sentence", "mood"), [(*each, mood) for mood, some in SENTENCES.items() for each in some]
)
def test_status_sentence(situation: Situation, sentence: str, mood: str) -> None:
    found = status(situation)
    assert found.sentence == sentence
    assert found.mood == mood


def test_a_pause_is_explained_with_its_figures_and_what_passes_cost() -> None:
    now = Situation(pair=PAIR, paused=PAUSE, plain_pass=0.0081, drafted_pass=0.0194)
    why = status(now).why.replace("\u00a0", " ")
    for figure in (
        "about 22% of the draft tokens are accepted",
        "about 41% of the draft tokens",
        "19.4 ms with a draft",
        "8.1 ms without",
    ):
        assert figure in why
    assert " ms" not in status(Situation(pair=PAIR, paused=PAUSE, plain_pass=0.0081)).why
    # Nothing to end where the user has done so, or where nothing is paused.
    assert not status(Situation(pair=PAIR, draft_length=5, asked=ASKED, paused=PAUSE)).why
    assert not status(Situation(pair=PAIR, figures=DRAFTED)).why


@pytest.mark.parametrize(
    ("pause", "reason"),
    [
        (Pause(acceptance_rate=0.6, break_even_rate=0.6), "just below the break-even point"),
        (Pause(acceptance_rate=0.6, break_even_rate=0.5), "just below the break-even point"),
        (Pause(acceptance_rate=0.6001, break_even_rate=0.6002), "just below the break-even point"),
    ],
)
def test_a_pause_names_no_needed_rate_where_none_would_help(pause: Pause, reason: str) -> None:
    found = status(Situation(pair=PAIR, paused=pause))
    assert (
        found.sentence
        == "Drafting is paused · It isn't saving time on this text: about 60% of the draft tokens are accepted."
    )
    assert reason in found.why
    assert "saves time once" not in found.why
    assert reason not in status(Situation(pair=PAIR, paused=PAUSE)).why


def test_a_pause_where_no_draft_would_help_says_so() -> None:
    found = status(Situation(pair=PAIR, paused=Pause(acceptance_rate=0.6, break_even_rate=1.0)))
    assert found.detail == "Right now, even a fully accepted draft wouldn't save time on this computer."
    assert "more than even a fully accepted draft would save" in found.why


def test_no_speed_up_without_a_baseline() -> None:
    assert Situation(figures=DRAFTED).speed_up is None
    assert Situation(figures=Figures(), plain_speed=41.0).speed_up is None
    assert Situation(figures=DRAFTED, plain_speed=37.1).speed_up == pytest.approx(2.0)


def test_definitions_are_never_taken_for_markup() -> None:
    for text in HELP.values():
        assert "<" not in text


SERVER = Server(kind="vllm", version="0.29.0", address="http://far.example:8000")
REMOTE = PairLoaded(
    request=1,
    target=ModelInfo(path="", name="m"),
    remote=RemoteModel(server=SERVER, model="m", figures="reply", figures_note="Start it with --figures."),
)
NO_FIGURES = PairLoaded(request=1, target=REMOTE.target, remote=RemoteModel(server=SERVER, model="m"))
WHOLE = Asked("auto", ())
OF_REPLY = DraftFigures(
    drafted=215,
    tested=215,
    accepted=63,
    acceptance_rate=0.293,
    verify_passes=43,
    mean_acceptance_length=2.465,
    passes_per_accepted=[11, 14, 11, 4, 0, 3],
    source="reply",
)


def answered(draft: DraftFigures) -> Situation:
    figures = Figures(decode_tokens_per_second=74.2, draft=draft)
    return Situation(pair=REMOTE, is_remote=True, asked=WHOLE, figures=figures)


@pytest.mark.parametrize(
    ("situation", "sentence", "mood"),
    [
        (Situation(is_remote=True, engine_state="no model"), "Not connected · The chat says why, and what", "plain"),
        (Situation(is_remote=True, engine_state="connecting"), "Connecting", "plain"),
        (Situation(pair=REMOTE), "Model on a server · Figures appear with the next answer.", "plain"),
        (Situation(pair=NO_FIGURES), "Model on a server · Speed is measured here.", "plain"),
        (Situation(pair=REMOTE, asked=WHOLE, answering=True), "Model on a server · Waiting for the server", "plain"),
        (answered(OF_REPLY), "Drafting on the server · 29% accepted · 2.5 tokens per pass · 74 tok/s", "good"),
        (
            answered(msgspec.structs.replace(OF_REPLY, estimated_passes=True)),
            "Drafting on the server · 29% accepted · about 2.5 tokens per pass · 74 tok/s",
            "good",
        ),
        # Nothing is known, nothing was drafted and nothing was accepted are different answers.
        (answered(DraftFigures(source="none")), "No drafting figures · 74 tok/s", "plain"),
        (answered(DraftFigures(source="reply")), "Nothing was drafted · 74 tok/s", "plain"),
        (
            answered(DraftFigures(drafted=9, tested=9, acceptance_rate=0.0, source="reply")),
            "No draft token was accepted · 0% accepted · 74 tok/s",
            "warning",
        ),
        (
            answered(DraftFigures(mean_acceptance_length=2.46, source="reply")),
            "Drafting on the server · 2.5 tokens per pass · 74 tok/s",
            "good",
        ),
        (
            Situation(pair=REMOTE, asked=WHOLE, answering=True, figures=DRAFTED),
            "Drafting on the server · 68% accepted · 74 tok/s",  # its passes are known only at the end
            "good",
        ),
    ],
)
def test_a_server_says_what_it_knows(situation: Situation, sentence: str, mood: str) -> None:
    said = status(situation)
    assert (said.sentence[: len(sentence)], said.mood) == (sentence, mood)


def test_where_the_figures_of_a_server_come_from() -> None:
    assert wording.server_note(Situation(pair=PAIR)) == ""
    assert wording.server_note(Situation(pair=REMOTE)) == "Start it with --figures."
    assert wording.server_note(Situation(pair=NO_FIGURES)) == "This server gives no drafting figures."
    counters = wording.server_note(answered(msgspec.structs.replace(OF_REPLY, source="counters")))
    assert counters.endswith("so they include other requests at that time.")
    estimated = wording.server_note(answered(msgspec.structs.replace(OF_REPLY, estimated_passes=True)))
    assert "tokens per pass is calculated from its other figures" in estimated


def test_positions_of_a_server_are_shares_of_all_its_passes() -> None:
    shares = wording.accepted_per_pass(Figures(draft=OF_REPLY))
    assert shares == [32 / 43, 18 / 43, 7 / 43, 3 / 43, 3 / 43]
    assert sum(shares) == pytest.approx(63 / 43)  # the sums close: accepted tokens per pass
    counted = DraftFigures(verify_passes=10, accepted_per_position=[5, 2], source="counters")
    assert wording.accepted_per_pass(Figures(draft=counted)) == [0.5, 0.2]
    assert wording.accepted_per_pass(Figures()) == []
