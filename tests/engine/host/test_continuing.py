"""A cut answer goes on as if it had never been cut."""

from __future__ import annotations

import pytest

from app.engine.host.engine import Engine
from app.protocol.commands import CheckText, Message
from app.protocol.options import Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, ask, run
from tests.support.matrix import in_proof
from tests.support.pairs import HOT, PENALIZED, WARM, Loader, Pair

QUESTION = "What is a draft?"


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("sampling", [PENALIZED, *in_proof([GREEDY, WARM])])
@pytest.mark.parametrize("drafter", ["auto", *in_proof(["none", "model", "ngram"])])
def test_cut_and_continued_is_the_whole(
    engine: Engine, load: Loader, guide_pair: Pair, sampling: Sampling, drafter: str
) -> None:
    load(*guide_pair)
    options = {"sampling": sampling, "drafter": drafter, "draft_length": 0 if drafter == "none" else 5}
    whole = run(engine, ask(QUESTION, max_tokens=40, **options))
    assert len(whole.token_ids) == 40
    for cut in (1, 8, 21):
        first = run(engine, ask(QUESTION, max_tokens=cut, **options))
        ids = [piece.id for piece in first.pieces]
        assert ids == whole.token_ids[:cut]
        rest = run(engine, ask(QUESTION, max_tokens=40 - cut, continued=ids, **options))
        assert first.text + rest.text == whole.text
        assert [piece.id for piece in rest.pieces] == rest.token_ids == whole.token_ids[cut:]
        assert rest.started.cached_tokens == rest.started.prompt_tokens - 1
        assert rest.finished.figures.completion_tokens == 40 - cut
        assert rest.finished.finish_reason == "length"


@pytest.mark.usefixtures("one_by_one")
def test_an_answer_goes_on_though_its_cache_is_gone(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair, chat_cache_mib=0)
    whole = run(engine, ask(QUESTION, sampling=WARM, max_tokens=40))
    run(engine, ask("Something else entirely", max_tokens=3))
    rest = run(engine, ask(QUESTION, sampling=WARM, max_tokens=20, continued=whole.token_ids[:20]))
    assert rest.started.cached_tokens < 20
    assert rest.text == "".join(piece.text for piece in whole.pieces[20:])


@pytest.mark.usefixtures("one_by_one")
def test_characters_split_by_the_cut_come_out_whole(loaded: Engine) -> None:
    whole = run(loaded, ask(QUESTION, sampling=HOT, max_tokens=60))
    for cut in range(1, 60, 8):
        first = run(loaded, ask(QUESTION, sampling=HOT, max_tokens=cut))
        rest = run(loaded, ask(QUESTION, sampling=HOT, max_tokens=60 - cut, continued=whole.token_ids[:cut]))
        assert first.text + rest.text == whole.text


@pytest.mark.usefixtures("one_by_one")
def test_a_stop_string_may_begin_before_the_cut(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair)
    whole = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=30))
    texts = [piece.text for piece in whole.pieces]
    stop = "".join(texts[9:14])
    uncut = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=30, stop=[stop]))
    assert uncut.finished.stop_string == stop and uncut.finished.stop_overlap == 0
    assert [piece.id for piece in uncut.pieces] == whole.token_ids[: len(uncut.pieces)] == uncut.token_ids
    for cut in (8, 11, 13):
        first = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=cut, stop=[stop]))
        assert first.text == "".join(texts[:cut])
        rest = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=20, stop=[stop], continued=whole.token_ids[:cut]))
        assert rest.finished.finish_reason == "stop_string"
        kept = first.text[: len(first.text) - rest.finished.stop_overlap]
        assert kept + rest.text == uncut.text
        assert [piece.id for piece in rest.pieces] == rest.token_ids


@pytest.mark.parametrize("tokens", [[-1], [5, 10_000_000]])
def test_tokens_of_another_model_are_refused(loaded: Engine, tokens: list[int]) -> None:
    with pytest.raises(KnownError, match="another model wrote it"):
        run(loaded, ask(QUESTION, continued=tokens))


def test_an_answer_that_had_ended_is_refused(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair)
    answer = run(engine, ask(QUESTION, sampling=GREEDY))
    assert answer.finished.finish_reason == "end"
    assert [piece.id for piece in answer.pieces] == answer.token_ids
    with pytest.raises(KnownError, match="because it is complete"):
        run(engine, ask(QUESTION, continued=answer.token_ids))


def test_an_answer_cut_by_a_full_context(engine: Engine, load: Loader, random_pair: Pair) -> None:
    """Messages leave only to make room for what is new."""
    load(*random_pair, context_length=256)
    chat = [Message(role="user", content="one two three"), Message(role="assistant", content="four five")] * 3
    chat.append(Message(role="user", content="six"))
    first = run(engine, ask("", messages=chat, sampling=GREEDY))
    assert first.finished.finish_reason == "context" and first.started.dropped_messages == 0
    options = {"messages": chat, "sampling": GREEDY, "max_tokens": 10}
    full = r"can't be continued because the context is full\. It only holds 256 tokens\."
    with pytest.raises(KnownError, match=full):
        run(engine, ask("", continued=first.token_ids, overflow="stop", **options))
    shorter = run(engine, ask("", continued=first.token_ids[:50], **options))
    assert shorter.started.dropped_messages == 0
    rest = run(engine, ask("", continued=first.token_ids, **options))
    assert rest.started.dropped_messages > 0 and rest.finished.finish_reason == "length"
    with pytest.raises(KnownError, match=full):
        run(engine, ask("", continued=first.token_ids * 2, **options))


def test_a_text_is_checked(engine: Engine, load: Loader, guide_pair: Pair) -> None:
    load(*guide_pair)
    answer = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=30))
    for text in (answer.text, "", "naïve 🙂 text\n\n  with <|im_end|> in it"):
        tokens = engine.check_text(CheckText(request=1, text=text)).tokens
        assert tokens is not None
        rest = run(engine, ask(QUESTION, sampling=GREEDY, max_tokens=5, continued=tokens))
        assert rest.finished.figures.completion_tokens > 0
    assert engine.check_text(CheckText(request=1, text="half a pair \ud83d")).tokens is None
