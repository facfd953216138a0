"""The line under an answer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from app.chats.model import Status, StoredMessage, to_json
from app.protocol.events import DrafterFigures, DraftFigures, Figures
from app.ui.chat.answers import ENGINE_LOST
from app.ui.chat.footer import details_of, figures_of, footer_of, note_of

FIGURES = Figures(
    prompt_tokens=12,
    completion_tokens=1214,
    time_to_first_token_seconds=0.12,
    decode_tokens_per_second=74.2,
    draft=DraftFigures(
        drafted=100, tested=100, accepted=68, acceptance_rate=0.68, verify_passes=36, mean_acceptance_length=2.89
    ),
)


def answer(
    reason: str | None = "end",
    status: Status = "complete",
    figures: dict[str, object] | None = None,
    settings: dict[str, object] | None = None,
) -> StoredMessage:
    kept = msgspec.to_builtins(FIGURES) if figures is None else figures
    kept_json, settings_json = to_json(kept), to_json(settings or {})
    return StoredMessage(
        *("id", "chat", None, "assistant", "text", status, 0.0, None, reason, None, settings_json, kept_json)
    )


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u2060", "")


def test_all_figures_with_units() -> None:
    assert plain(footer_of(answer())) == (
        "74 tok/s · 1,214 tokens · 0.12 s to first token · 68% accepted · 2.9 tokens per pass"
    )


def test_without_a_draft_nothing_is_accepted() -> None:
    figures = msgspec.to_builtins(msgspec.structs.replace(FIGURES, draft=DraftFigures(), completion_tokens=1))
    assert plain(footer_of(answer(figures=figures))) == "74 tok/s · 1 token · 0.12 s to first token"


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (DraftFigures(source="none"), ""),
        (DraftFigures(source="reply", mean_acceptance_length=1.0), ""),
        (DraftFigures(source="reply", mean_acceptance_length=2.46), " · 2.5 tokens per pass"),
        (
            msgspec.structs.replace(FIGURES.draft, source="live", estimated_passes=True),
            " · 68% accepted · about 2.9 tokens per pass",
        ),
        (
            msgspec.structs.replace(FIGURES.draft, source="counters"),
            " · 68% accepted · 2.9 tokens per pass · drafting figures from the server's counters",
        ),
    ],
)
def test_figures_of_a_server_are_marked_as_what_they_are(draft: DraftFigures, words: str) -> None:
    figures = msgspec.to_builtins(msgspec.structs.replace(FIGURES, draft=draft))
    assert plain(footer_of(answer(figures=figures))) == f"74 tok/s · 1,214 tokens · 0.12 s to first token{words}"


def test_each_drafter_is_listed_where_two_helped() -> None:
    model = DrafterFigures(name="model", drafted=160, tested=160, accepted=120, acceptance_rate=0.75, verify_passes=40)
    ngram = DrafterFigures(name="ngram", drafted=16, tested=1, accepted=0, acceptance_rate=0.0, verify_passes=1)
    unused = DrafterFigures(name="ngram", drafted=3)

    def details(*drafters: DrafterFigures) -> str:
        draft = msgspec.structs.replace(FIGURES.draft, drafters=list(drafters))
        return plain(details_of(answer(figures=msgspec.to_builtins(msgspec.structs.replace(FIGURES, draft=draft)))))

    assert details(model, ngram) == (
        "Draft model: 120 of 160 draft tokens accepted (75%) in 40 verify passes\n"
        "n-grams: 0 of 1 draft token accepted (0%) in 1 verify pass"
    )
    assert details(model, unused) == details(model) == details() == ""


def test_a_drafter_or_kind_that_is_not_known_costs_only_its_own_entry() -> None:
    drafters = [DrafterFigures(name="model", tested=4), DrafterFigures(name="ngram", tested=4)]
    draft = msgspec.structs.replace(FIGURES.draft, drafters=drafters)
    figures = msgspec.to_builtins(msgspec.structs.replace(FIGURES, draft=draft))
    figures["draft"]["drafters"] += [{"name": "heads", "tested": 9}, {"name": ["model"]}, 5]
    figures["kinds"] = [{"kind": "code", "tokens": 4}, {"kind": "poem", "tokens": 9}, 5]
    message = answer(figures=figures)
    assert plain(footer_of(message)) == plain(footer_of(answer()))
    assert [line.partition(":")[0] for line in details_of(message).splitlines()] == ["Draft model", "n-grams"]
    assert [one.kind for one in figures_of(figures).kinds] == ["code"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("end", ""),
        ("length", "reached the length limit"),
        ("context", "context full"),
        ("cancelled", "stopped by you"),
        ("stop_string", "stopped at a stop string"),
    ],
)
def test_every_end_has_its_words(reason: str, words: str) -> None:
    assert footer_of(answer(reason, figures={})) == words


@pytest.mark.parametrize("figures", [{"draft": 5}, {"completion_tokens": "many"}, {"decode_tokens_per_second": []}])
def test_figures_that_cannot_be_read_are_left_out(figures: dict[str, object]) -> None:
    assert footer_of(answer("cancelled", figures=figures)) == "stopped by you"


def test_notes_say_what_went_wrong() -> None:
    assert note_of(answer()) is None
    assert note_of(answer(None, "failed", {"failure": "Too long."})) == "Too long."
    assert "saved" in str(note_of(answer(None, "interrupted", {})))
    assert "saved" in str(note_of(answer(None, "interrupted", {"failure": ENGINE_LOST})))
    lost: list[dict[str, object]] = [{}, {"failure": ENGINE_LOST}]
    empty = [replace(answer(None, "interrupted", figures), text="") for figures in lost]
    assert [note_of(one) for one in empty] == [
        "Slipstream closed before this answer began.",
        "The engine stopped before this answer began.",
    ]
    call = '[{"id": "1", "name": "look", "state": "done"}]'
    assert all("saved" in str(note_of(replace(one, calls_json=call))) for one in empty)
    called = replace(answer(), text="", calls_json=call)
    assert note_of(called) == "The model stopped after its tool calls, without writing an answer."
    assert note_of(answer(None, "failed", {}))
    for reason in ("end", "stop_string"):
        assert note_of(replace(answer(reason), text=" \n")) == "The model ended its answer before the first word."


def test_the_stop_string_and_chatml_are_named() -> None:
    assert footer_of(answer("stop_string", figures={"stop_string": "END"})) == "stopped at “END”"
    assert footer_of(answer("stop_string", figures={"stop_string": "x" * 21})) == f"stopped at “{'x' * 19}…”"
    assert footer_of(answer(settings={"template": "chatml"})).endswith(" · ChatML template")
