"""Keeping the KV caches of several chats: what is copied, what comes back, and what that must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import llama_cpp
import numpy as np
import psutil
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.chat_cache import ChatCaches, ChatSwitcher, Pace, Policy, memory_limit
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.llama import context as llama
from app.errors import KnownError
from tests.support.eager_engine import EAGER

LENGTH = 512
OWNER = "owner"


@pytest.fixture(scope="module")
def model(random_pair: tuple[Path, Path]) -> Iterator[llama.Model]:
    llama.start()
    model = llama.Model(random_pair[0], 0, lambda _: True)
    yield model
    model.close()


@pytest.fixture
def new_context(model: llama.Model) -> Iterator[Callable[[], llama.Context]]:
    made = []

    def new() -> llama.Context:
        made.append(llama.Context(model, length=LENGTH, batch_size=64, micro_batch_size=64, threads=1, kv_type="f16"))
        return made[-1]

    yield new
    for context in made:
        context.close()


@pytest.fixture
def context(new_context: Callable[[], llama.Context]) -> llama.Context:
    return new_context()


def caches(files: ChatCacheFiles | None = None, policy: Policy = EAGER) -> ChatCaches:
    kept = ChatCaches(files, policy)
    kept.set_limit(64 * 1024 * 1024)
    return kept


def switcher(context: llama.Context, kept: ChatCaches, owner: str = OWNER) -> ChatSwitcher:
    return ChatSwitcher(context, kept, owner, lambda: False)


def chat(seed: int, length: int = 200) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 400, length)]


def feed(context: llama.Context, tokens: list[int]) -> Floats:
    """Process what ``context`` lacks of ``tokens``; the logits behind them."""
    while True:
        missing = tokens[len(context.tokens) :][: context.chunk]
        row: Floats = context.decode(missing, 1)[0].copy()
        if len(context.tokens) == len(tokens):
            return row


def turn(switcher: ChatSwitcher, context: llama.Context, tokens: list[int]) -> tuple[int, Floats]:
    """One turn with the prompt ``tokens``: how much of it was there, and the logits behind it."""
    shared = switcher.begin(tokens[:-1])
    assert context.tokens == tokens[:shared]
    return shared, feed(context, tokens)


@pytest.mark.usefixtures("one_by_one")
def test_going_back_to_a_chat_brings_it_back_bit_by_bit(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    first, second = chat(1), chat(2)
    _, logits = turn(keep, context, first)
    turn(keep, context, second)
    shared, again = turn(keep, context, first)
    assert shared == len(first) - 1
    assert np.array_equal(again, logits)


def test_a_longer_turn_and_an_edited_one_take_what_they_share(
    context: llama.Context, new_context: Callable[[], llama.Context]
) -> None:
    keep = switcher(context, caches())
    first = chat(1)
    turn(keep, context, first)
    turn(keep, context, chat(2))
    for tokens, expected in (([*first, *chat(3, 40)], 200), ([*first[:120], *chat(4, 30)], 120)):
        shared, logits = turn(keep, context, tokens)
        assert shared == expected
        anew = feed(new_context(), tokens)
        assert np.abs(logits - anew).max() < 0.1 < anew.std()
        turn(keep, context, chat(5))


def test_caches_of_another_owner_are_never_taken(new_context: Callable[[], llama.Context]) -> None:
    kept = caches()
    one, other = new_context(), new_context()
    keep_one, keep_other = switcher(one, kept), switcher(other, kept, "somebody else")
    turn(keep_one, one, chat(1))
    turn(keep_one, one, chat(2))
    assert turn(keep_other, other, chat(1))[0] == 0
    assert turn(keep_one, one, chat(1))[0] == 199


def test_what_the_cache_goes_on_from_is_not_kept_twice(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    chats = [chat(1, 100), chat(2, 100)]
    for _ in range(4):
        for number, tokens in enumerate(chats):
            turn(keep, context, tokens)
            chats[number] = [*tokens, *chat(len(tokens), 40)]
    sizes = [len(entry.state.tokens) for entry in kept.of(OWNER)]
    assert sizes == [220]  # the other is in the context


def test_the_least_recently_used_go_when_the_limit_is_reached(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    turn(keep, context, chat(1))
    kept.set_limit(5 * context.state_size() // 2)
    for number in (2, 3, 1, 4, 5):
        turn(keep, context, chat(number))
    held = [entry.state.tokens[0] for entry in kept.of(OWNER)]
    assert held == [chat(number)[0] for number in (1, 4)]
    assert turn(keep, context, chat(2))[0] == 0
    assert turn(keep, context, chat(4))[0] == 199


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_limit_smaller_than_one_chat_keeps_nothing(context: llama.Context, tmp_path: Path, limit: int) -> None:
    kept = caches(ChatCacheFiles(tmp_path))
    kept.set_limit(limit)
    keep = switcher(context, kept)
    for number in (1, 2, 1):
        assert turn(keep, context, chat(number))[0] == 0
    keep.put_away()
    kept.flush(10)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_nothing_erases_what_was_kept(context: llama.Context, tmp_path: Path) -> None:
    kept = caches(ChatCacheFiles(tmp_path))
    keep = switcher(context, kept)
    turn(keep, context, chat(1))
    keep.put_away()
    kept.flush(10)
    assert len(list(tmp_path.iterdir())) == 1
    kept.set_limit(0)
    assert list(tmp_path.iterdir()) == [] and kept.of(OWNER) == []


def test_what_is_quick_to_process_is_not_copied(context: llama.Context) -> None:
    kept = caches(policy=Policy())
    keep = switcher(context, kept)
    turn(keep, context, chat(1))
    keep.processed(1000, 0.001)
    turn(keep, context, chat(2))
    assert kept.of(OWNER) == []
    slow = switcher(context, kept)
    slow.processed(1000, 100.0)
    turn(slow, context, chat(1))
    assert len(kept.of(OWNER)) == 1


def test_what_is_slow_to_bring_back_stays_where_it_is(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    keep.processed(1000, 1.0)
    turn(keep, context, chat(1))
    turn(keep, context, chat(2))
    kept.copy_back = Pace(1.0)
    assert turn(keep, context, chat(1))[0] == 0


def test_an_answer_written_anew_is_copied_only_where_processing_is_very_slow(context: llama.Context) -> None:
    kept = caches(policy=Policy(least_seconds=0.0, gain=1.0, gain_of_repeats=100.0))
    keep = switcher(context, kept)
    prompt = chat(1, 50)
    turn(keep, context, prompt)
    size = context.state_size()
    feed(context, [*prompt, *chat(2, 100)])
    kept.copy_out = Pace(1.0 / size)  # about three seconds for the copy
    keep.processed(1000, 100.0)  # ten seconds for the answer
    turn(keep, context, prompt)
    assert kept.of(OWNER) == []
    feed(context, [*prompt, *chat(3, 100)])
    turn(keep, context, [*prompt[:20], *chat(4, 30)])
    assert len(kept.of(OWNER)) == 1


def test_the_last_message_edited_is_not_worth_a_copy_of_a_long_chat(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    turn(keep, context, chat(1, 400))
    assert turn(keep, context, [*chat(1, 400)[:350], *chat(2, 30)])[0] == 350
    assert kept.of(OWNER) == []


def test_a_measurement_in_between_costs_the_chat_nothing(context: llama.Context) -> None:
    kept = caches()
    keep = switcher(context, kept)
    tokens = chat(1, 400)
    turn(keep, context, tokens)
    keep.before_measuring()
    turn(keep, context, tokens[:380])
    assert turn(keep, context, [*tokens, 7])[0] == 400


def cannot_be_cut(context: llama.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent and hybrid memories refuse to be rolled back to the middle of what was fed."""
    remove = llama_cpp.llama_memory_seq_rm
    monkeypatch.setattr(context.rolling_back, "running_state", True)
    monkeypatch.setattr(
        llama_cpp, "llama_memory_seq_rm", lambda memory, sequence, begin, end: not begin and remove(memory, 0, 0, -1)
    )


def test_a_memory_that_cannot_be_cut_comes_back_only_as_a_whole(
    context: llama.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_be_cut(context, monkeypatch)
    kept = caches()
    keep = switcher(context, kept)
    first = chat(1)
    turn(keep, context, first)
    turn(keep, context, chat(2))
    assert turn(keep, context, [*first[:150], *chat(3, 30)])[0] == 0
    assert turn(keep, context, [*first, *chat(3, 30)])[0] == 200
    assert turn(keep, context, [*first, *chat(4, 30)])[0] == 200  # the shorter one is of use again


def test_a_sliding_window_does_not_reach_behind_what_was_kept(
    context: llama.Context, model: llama.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp leaves out of a state what the window of its layers no longer sees."""
    monkeypatch.setattr(context.rolling_back, "window", 32)
    keep = switcher(context, caches())
    first = chat(1)
    turn(keep, context, first)
    turn(keep, context, chat(2))
    assert turn(keep, context, [*first[:150], *chat(3, 30)])[0] == 0
    assert turn(keep, context, [*first, *chat(3, 30)])[0] == 200
    monkeypatch.setattr(llama_cpp, "llama_memory_seq_pos_min", lambda *_: 168)
    assert (context.reach(199), context.reach(198)) == (199, 0)
    context.roll_back(210)
    context.roll_back(198)
    assert context.tokens == []


@pytest.mark.usefixtures("one_by_one")
def test_a_state_llama_cpp_refuses_is_given_up_and_processed_again(
    context: llama.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = caches()
    keep = switcher(context, kept)
    _, logits = turn(keep, context, chat(1))
    turn(keep, context, chat(2))
    with monkeypatch.context() as refusing:
        refusing.setattr(llama_cpp, "llama_state_seq_set_data_ext", lambda *_: 0)
        shared, again = turn(keep, context, chat(1))
    assert shared == 0 and np.array_equal(again, logits)
    assert [entry.state.tokens[0] for entry in kept.of(OWNER)] == [chat(2)[0]]


def test_a_copy_that_fails_costs_only_the_copy(context: llama.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = switcher(context, caches())
    turn(keep, context, chat(1))

    for error in (KnownError("no"), MemoryError()):
        monkeypatch.setattr(context, "save", Mock(side_effect=error))
        assert turn(keep, context, chat(2))[0] == 0
        assert turn(keep, context, chat(1))[0] == 0


@pytest.mark.usefixtures("one_by_one")
def test_large_ones_go_to_disk_and_come_back(context: llama.Context, tmp_path: Path) -> None:
    files = ChatCacheFiles(tmp_path)
    kept = caches(files)
    keep = switcher(context, kept)
    _, logits = turn(keep, context, chat(1))
    kept.set_limit(3 * context.state_size() // 2)
    for number in (2, 3, 4):
        turn(keep, context, chat(number))
        files.flush(10)
    assert {int(file.tokens[0]) for file in files.of(OWNER)} == {chat(1)[0], chat(2)[0]}
    shared, again = turn(keep, context, chat(1))
    assert shared == 199 and np.array_equal(again, logits)


@pytest.mark.usefixtures("one_by_one")
def test_what_is_put_away_is_there_for_the_next_engine(
    new_context: Callable[[], llama.Context], tmp_path: Path
) -> None:
    context, files = new_context(), ChatCacheFiles(tmp_path)
    kept = caches(files)
    keep = switcher(context, kept)
    logits = {number: turn(keep, context, chat(number))[1] for number in (1, 2, 3)}
    keep.put_away()
    assert kept.of(OWNER) == []
    kept.flush(10)
    again = new_context()
    next_keep = switcher(again, caches(ChatCacheFiles(tmp_path)))
    for number in (3, 1, 2):
        shared, row = turn(next_keep, again, chat(number))
        assert shared == 199 and np.array_equal(row, logits[number])


def test_small_ones_do_not_go_to_disk(context: llama.Context, tmp_path: Path) -> None:
    kept = caches(ChatCacheFiles(tmp_path), Policy(least_seconds=0.0, gain=0.0))
    keep = switcher(context, kept)
    keep.processed(1000, 1.0)  # 0.2 seconds for the whole chat
    turn(keep, context, chat(1))
    keep.put_away()
    kept.flush(10)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_slow_to_read_is_left_alone(context: llama.Context, tmp_path: Path) -> None:
    kept = caches(ChatCacheFiles(tmp_path))
    keep = switcher(context, kept)
    turn(keep, context, chat(1))
    keep.put_away()
    kept.flush(10)
    context.clear()
    kept.read = Pace(1.0)
    assert turn(keep, context, chat(1))[0] == 0


def test_stopping_ends_the_reading_of_a_file(context: llama.Context, tmp_path: Path) -> None:
    kept = caches(ChatCacheFiles(tmp_path))
    first = switcher(context, kept)
    turn(first, context, chat(1))
    first.put_away()
    kept.flush(10)
    context.clear()
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    stopping = ChatSwitcher(context, kept, OWNER, stopped)
    assert stopping.begin(chat(1)) == 0
    assert turn(first, context, chat(1))[0] == 199


def test_one_slow_time_does_not_end_the_keeping() -> None:
    pace = Pace(1.0)
    pace.learn(10, 20.0)
    assert pace.seconds == 2.0  # better than a guess
    pace.learn(1, 3600.0)
    assert pace.seconds == 5.0
    for _ in range(4):
        pace.learn(1, 2.0)
    assert pace.seconds < 2.2


def test_the_automatic_limit_is_an_eighth_of_the_memory() -> None:
    total = psutil.virtual_memory().total
    assert memory_limit(-1) == min(total // 8, 2048 * 1024 * 1024)
    assert (memory_limit(0), memory_limit(3)) == (0, 3 * 1024 * 1024)
