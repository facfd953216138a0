"""The KV caches of several chats: what is copied, what comes back, and what that must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import llama_cpp
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import LoadSettings
from app.system import KnownError
from tests.support.pairs import Pair

LENGTH = 512
OWNER = "owner"
pytestmark = pytest.mark.usefixtures("every_cache_is_saved")


@pytest.fixture(scope="module")
def model(random_pair: Pair) -> Iterator[Model]:
    backend.start()
    model = Model(random_pair[0], 0, lambda _: True)
    yield model
    model.close()


@pytest.fixture
def new_context(model: Model) -> Iterator[Callable[[], Context]]:
    made = []

    def new() -> Context:
        made.append(Context(model, LoadSettings(batch_size=64, micro_batch_size=64), length=LENGTH, threads=1))
        return made[-1]

    yield new
    for context in made:
        context.close()


@pytest.fixture
def context(new_context: Callable[[], Context]) -> Context:
    return new_context()


def new_caches(files: ChatCacheFiles | None = None) -> ChatCaches:
    caches = ChatCaches(files)
    caches.set_limit(64 * 1024 * 1024)
    return caches


def new_switcher(context: Context, caches: ChatCaches, owner: str = OWNER) -> ChatSwitcher:
    return ChatSwitcher(context, caches, owner, lambda: False)


def chat(seed: int, length: int = 200) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 400, length)]


def feed(context: Context, tokens: list[int]) -> Floats:
    """Process what ``context`` lacks of ``tokens``; the logits behind them."""
    while True:
        missing = tokens[len(context.tokens) :][: context.chunk]
        row: Floats = context.decode(missing, 1)[0].copy()
        if len(context.tokens) == len(tokens):
            return row


def turn(switcher: ChatSwitcher, context: Context, tokens: list[int]) -> tuple[int, Floats]:
    """One turn with the prompt ``tokens``: how much of it was there, and the logits behind it."""
    shared = switcher.begin(tokens[:-1])
    assert context.tokens == tokens[:shared]
    return shared, feed(context, tokens)


@pytest.mark.usefixtures("one_by_one")
def test_going_back_to_a_chat_brings_it_back_bit_by_bit(context: Context) -> None:
    caches = new_caches()
    switcher = new_switcher(context, caches)
    first, second = chat(1), chat(2)
    _, logits = turn(switcher, context, first)
    turn(switcher, context, second)
    shared, again = turn(switcher, context, first)
    assert shared == len(first) - 1
    assert np.array_equal(again, logits)


def test_a_longer_turn_and_an_edited_one_take_what_they_share(
    context: Context, new_context: Callable[[], Context]
) -> None:
    switcher = new_switcher(context, new_caches())
    first = chat(1)
    turn(switcher, context, first)
    turn(switcher, context, chat(2))
    for tokens, expected in (([*first, *chat(3, 40)], 200), ([*first[:120], *chat(4, 30)], 120)):
        shared, logits = turn(switcher, context, tokens)
        assert shared == expected
        anew = feed(new_context(), tokens)
        assert np.abs(logits - anew).max() < 0.1 < anew.std()
        turn(switcher, context, chat(5))


def test_caches_of_another_owner_are_never_taken(new_context: Callable[[], Context]) -> None:
    caches = new_caches()
    one, other = new_context(), new_context()
    switcher, others = new_switcher(one, caches), new_switcher(other, caches, "somebody else")
    turn(switcher, one, chat(1))
    turn(switcher, one, chat(2))
    assert turn(others, other, chat(1))[0] == 0
    assert turn(switcher, one, chat(1))[0] == 199


def test_the_least_recently_used_go_when_the_limit_is_reached(context: Context) -> None:
    caches = new_caches()
    switcher = new_switcher(context, caches)
    turn(switcher, context, chat(1))
    caches.set_limit(5 * context.state_size() // 2)
    for number in (2, 3, 1, 4, 5):
        turn(switcher, context, chat(number))
    held = [saved.tokens[0] for saved in caches.in_memory(OWNER)]
    assert held == [chat(number)[0] for number in (1, 4)]
    assert turn(switcher, context, chat(2))[0] == 0
    assert turn(switcher, context, chat(4))[0] == 199


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_limit_smaller_than_one_chat_saves_nothing(context: Context, tmp_path: Path, limit: int) -> None:
    caches = new_caches(ChatCacheFiles(tmp_path))
    caches.set_limit(limit)
    switcher = new_switcher(context, caches)
    for number in (1, 2, 1):
        assert turn(switcher, context, chat(number))[0] == 0
    switcher.put_away()
    caches.files.flush(10)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_nothing_erases_what_was_saved(context: Context, tmp_path: Path) -> None:
    caches = new_caches(ChatCacheFiles(tmp_path))
    switcher = new_switcher(context, caches)
    turn(switcher, context, chat(1))
    switcher.put_away()
    caches.files.flush(10)
    assert len(list(tmp_path.iterdir())) == 1
    caches.set_limit(0)
    assert list(tmp_path.iterdir()) == [] and caches.in_memory(OWNER) == []


@pytest.mark.usefixtures("one_by_one")
def test_a_state_llama_cpp_refuses_is_given_up_and_processed_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = new_caches()
    switcher = new_switcher(context, caches)
    _, logits = turn(switcher, context, chat(1))
    turn(switcher, context, chat(2))
    with monkeypatch.context() as refusing:
        refusing.setattr(llama_cpp, "llama_state_seq_set_data_ext", lambda *_: 0)
        shared, again = turn(switcher, context, chat(1))
    assert shared == 0 and np.array_equal(again, logits)
    assert [saved.tokens[0] for saved in caches.in_memory(OWNER)] == [chat(2)[0]]


def test_a_copy_that_fails_costs_only_the_copy(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    switcher = new_switcher(context, new_caches())
    turn(switcher, context, chat(1))

    for error in (KnownError("no"), MemoryError()):
        monkeypatch.setattr(context, "save", Mock(side_effect=error))
        assert turn(switcher, context, chat(2))[0] == 0
        assert turn(switcher, context, chat(1))[0] == 0


@pytest.mark.usefixtures("one_by_one")
def test_large_ones_go_to_disk_and_come_back(context: Context, tmp_path: Path) -> None:
    files = ChatCacheFiles(tmp_path)
    caches = new_caches(files)
    switcher = new_switcher(context, caches)
    _, logits = turn(switcher, context, chat(1))
    caches.set_limit(3 * context.state_size() // 2)
    for number in (2, 3, 4):
        turn(switcher, context, chat(number))
        files.flush(10)
    assert {int(file.tokens[0]) for file in files.of(OWNER)} == {chat(1)[0], chat(2)[0]}
    shared, again = turn(switcher, context, chat(1))
    assert shared == 199 and np.array_equal(again, logits)
