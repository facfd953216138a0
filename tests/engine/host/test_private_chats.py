"""Nothing of a private chat stays once another chat is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.host import chat_cache_files
from app.engine.host.chat_cache import ChatCaches
from app.engine.host.engine import Engine
from app.protocol.commands import Load, MeasurePlain, Message, ScoreTokens
from app.protocol.options import LoadSettings
from tests.support.generation import GREEDY, Answer, ask, run
from tests.support.pairs import Pair

SECRET = "The secret is a word that nobody else says. " * 8

pytestmark = pytest.mark.usefixtures("every_cache_is_saved")


@pytest.fixture
def engine(random_pair: Pair) -> Iterator[Engine]:
    """One with both models loaded that writes files."""
    engine = Engine(ChatCaches(chat_cache_files.of_this_user()))
    settings = LoadSettings(context_length=1024, chat_cache_mib=256)
    engine.load(
        Load(request=1, target=str(random_pair[0]), draft=str(random_pair[1]), settings=settings), lambda _: None
    )
    yield engine
    engine.unload()


def tell(engine: Engine, text: str, **options: object) -> Answer:
    return run(engine, ask(text, sampling=GREEDY, max_tokens=12, **options))


def saved_texts(engine: Engine) -> list[str]:
    """What the copies in memory say."""
    assert engine._target is not None
    piece = engine._target.model.piece
    states = engine.caches._saved
    return [b"".join(piece(int(token)) for token in state.tokens).decode("utf-8", "replace") for state in states]


def files(home: Path) -> list[Path]:
    folder = home / "cache" / "chats"
    return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("private", [False, True])
def test_another_chat_begins(engine: Engine, private: bool) -> None:
    tell(engine, "First " * 30)
    tell(engine, SECRET, private=private)
    tell(engine, "Last " * 30)
    assert any("First" in text for text in saved_texts(engine))
    assert any("secret" in text for text in saved_texts(engine)) is not private


@pytest.mark.parametrize("private", [False, True])
def test_the_engine_unloads(engine: Engine, home: Path, private: bool) -> None:
    tell(engine, SECRET, private=private)
    engine.unload()
    assert bool(files(home)) is not private


def test_its_own_next_turn_goes_on_from_the_cache(engine: Engine) -> None:
    first = tell(engine, SECRET, private=True)
    chat = [
        Message(role="user", content=SECRET),
        Message(role="assistant", content=first.text),
        Message(role="user", content="And?"),
    ]
    second = tell(engine, "", messages=chat, private=True)
    assert second.started.cached_tokens >= first.started.prompt_tokens


def turns(text: str, answer: str) -> list[Message]:
    return [
        Message(role="user", content=text),
        Message(role="assistant", content=answer),
        Message(role="user", content="And?"),
    ]


def test_it_goes_on_after_two_other_private_chats_and_is_erased_before_one_that_is_not(
    engine: Engine, home: Path
) -> None:
    """As a program asks for the title of a chat in between."""
    first = tell(engine, SECRET, private=True)
    for title in ("A title for it, please. " * 9, "What to ask next? " * 9):
        tell(engine, title, private=True)
    second = tell(engine, "", messages=turns(SECRET, first.text), private=True)
    assert second.started.cached_tokens >= first.started.prompt_tokens
    kept = [state for state in engine.caches._saved if state.private]
    assert kept and any(state.data.any() for state in kept)
    tell(engine, "Last " * 30)
    assert saved_texts(engine) == [] and not any(state.data.any() or state.tokens.any() for state in kept)
    engine.unload()
    assert len(files(home)) <= 2, "those of the last chat, for the target and the draft"


def test_copies_of_private_chats_never_become_files(engine: Engine, home: Path) -> None:
    tell(engine, SECRET, private=True)
    tell(engine, "A title. " * 30, private=True)
    engine.caches.limit = 1
    tell(engine, "Next. " * 30, private=True)
    assert saved_texts(engine) == []
    engine.unload()
    assert files(home) == []


def test_copies_of_private_chats_make_room_first(engine: Engine) -> None:
    tell(engine, "First " * 30)
    tell(engine, SECRET, private=True)
    tell(engine, "A title. " * 30, private=True)
    assert len(saved_texts(engine)) == 4, "of both models"
    engine.caches.limit = engine.caches.held_bytes() - 1
    engine.caches.trim()
    assert sum("First" in text for text in saved_texts(engine)) == 2


def test_what_it_was_overwritten_with_is_right(engine: Engine) -> None:
    before = tell(engine, "Last " * 30)
    engine.forget()
    tell(engine, SECRET, private=True)
    after = tell(engine, "Last " * 30)
    assert after.text == before.text and after.started.cached_tokens == 0


def test_a_private_chat_takes_nothing_away_from_the_one_it_began_like(engine: Engine) -> None:
    first = tell(engine, "First " * 30)
    tell(engine, "Second " * 30)
    tell(engine, "First " * 30, private=True)
    tell(engine, "Second " * 30)
    again = tell(engine, "First " * 30)
    assert again.started.cached_tokens == first.started.prompt_tokens - 1


@pytest.mark.parametrize("private", [False, True])
def test_measuring_with_its_question(engine: Engine, private: bool) -> None:
    tell(engine, SECRET, private=private)
    messages = [Message(role="user", content=SECRET)]
    engine.ready()
    engine.measure_plain(MeasurePlain(request=3, messages=messages, sampling=GREEDY, max_tokens=8, private=private))
    tell(engine, "Last " * 30)
    assert any("secret" in text for text in saved_texts(engine)) is not private


@pytest.mark.parametrize("private", [False, True])
def test_comparing_its_answer(engine: Engine, private: bool) -> None:
    tell(engine, SECRET, private=private)
    messages = [Message(role="user", content=SECRET)]
    command = ScoreTokens(request=3, messages=messages, answer=[65], candidates=[66, 67], seed=0, private=private)
    engine.ready()
    engine.score_tokens(command)
    tell(engine, "Last " * 30)
    assert any("secret" in text for text in saved_texts(engine)) is not private
