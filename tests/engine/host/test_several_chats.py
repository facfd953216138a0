"""Several chats on one engine: going back to one costs little and changes no word."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, MeasurePlain, Message
from app.protocol.options import LoadSettings
from app.storage.files import chat_of
from tests.support.generation import Answer, ask, run, tokens_of
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Pair

MIB = 1024 * 1024
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


def words(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


pytestmark = pytest.mark.usefixtures("every_cache_is_saved")


@pytest.fixture
def new_engine(random_pair: Pair, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Engines that keep every cache; ``on_disk`` all in the same folder.

    They use one thread: with several, passes of one token wait for each other's threads on a busy machine, and take so
    long that pytest's timeout ends the test. It strikes inside llama.cpp's callback, which swallows it: the answer just
    looks cancelled.
    """
    engines = []

    def new(pair: Pair = random_pair, on_disk: bool = False, **settings: object) -> Engine:
        engine = Engine(ChatCaches(ChatCacheFiles(tmp_path / "saved") if on_disk else None))
        options = {"context_length": 1024, "chat_cache_mib": 64, "threads": 1, **settings}
        load = LoadSettings(**options)  # type: ignore[arg-type]
        engine.load(Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=load), lambda _: None)
        engines.append(engine)
        return engine

    yield new
    for engine in engines:
        engine.unload()


@dataclass
class Chat:
    """A chat that grows by a question and an answer at a time."""

    engine: Engine
    messages: list[Message] = field(default_factory=list)
    raw: str = ""

    def ask(self, text: str, cancel_after: int | None = None, **options: object) -> Answer:
        self.messages.append(Message(role="user", content=text))
        return self.answer(cancel_after, **options)

    def answer(self, cancel_after: int | None = None, **options: object) -> Answer:
        """Write an answer, another one where there is one already."""
        if self.messages[-1].role == "assistant":
            self.messages.pop()
        options = {"sampling": WARM, "max_tokens": 40, **options}
        answer = run(self.engine, ask("", messages=list(self.messages), **options), cancel_after)
        self.messages.append(Message(role="assistant", content=answer.text))
        return answer

    def go_on(self, text: str) -> Answer:
        """Without a template: the prompt is all there was, and ``text``."""
        self.raw += text
        answer = run(self.engine, ask(self.raw, raw=True, sampling=WARM, max_tokens=16))
        self.raw += answer.text
        return answer


def processed(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> list[int]:
    """The lengths of the pieces of prompts that the draft model processes from now on."""
    lengths: list[int] = []
    assert engine._draft is not None
    decode = engine._draft.context.decode

    def counting(tokens: list[int], outputs: int) -> object:
        if outputs == 0:
            lengths.append(len(tokens))
        return decode(tokens, outputs)

    monkeypatch.setattr(engine._draft.context, "decode", counting)
    return lengths


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("on_disk", [True, *in_proof([False])], ids=["disk", "memory"])
def test_chats_in_turn_say_what_each_says_alone(new_engine: Callable[..., Engine], on_disk: bool) -> None:
    """And their draft model guesses as well, so its cache is its own chat's too."""
    engine = new_engine(on_disk=on_disk)
    together = [Chat(engine) for _ in range(3)]
    alone = [Chat(new_engine()) for _ in together]
    order = random.Random(3)
    accepted = {"together": 0, "alone": 0}
    for step in range(10):
        number = order.randrange(len(together))
        if on_disk and step % 5 == 4:
            engine.unload()
            engine = new_engine(on_disk=True)
            for chat in together:
                chat.engine = engine
        question = f"{number}: {words(step, 12)}"
        # Under `rejection` the draft model drafts in every round; under `coupled` when it drafts depends on timing.
        rule = "rejection" if step % 2 else "coupled"
        with_others = together[number].ask(question, seed=step, accept=rule)
        by_itself = alone[number].ask(question, seed=step, accept=rule)
        assert with_others.started.cached_tokens >= by_itself.started.cached_tokens
        assert with_others.token_ids == by_itself.token_ids
        if rule == "rejection":
            accepted["together"] += with_others.finished.figures.draft.accepted
            accepted["alone"] += by_itself.finished.figures.draft.accepted
    assert accepted["together"] == accepted["alone"] > 0


def test_going_back_processes_only_what_is_new(
    new_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = new_engine()
    one, other = Chat(engine), Chat(engine)
    first = one.ask(words(1, 100))
    other.ask(words(2, 100))
    lengths = processed(monkeypatch, engine)
    second = one.ask("And then?")
    assert second.started.cached_tokens >= first.started.prompt_tokens
    new = second.started.prompt_tokens - second.started.cached_tokens
    assert new < 80 and sum(lengths) < 80
    assert second.finished.figures.cached_tokens == second.started.cached_tokens


def test_a_chat_that_lost_its_oldest_messages_is_gone_back_to(new_engine: Callable[..., Engine]) -> None:
    """Each chat goes on where its own last prompt began, though another one lost messages in between."""
    engine = new_engine(context_length=512)
    one, other = Chat(engine), Chat(engine)
    for turn in range(8):
        for number, chat in enumerate((one, other)):
            answer = chat.ask(f"{turn} {number} {words(turn, 12)}", max_tokens=8)
    dropped = answer.started.dropped_messages
    assert dropped > 0
    for turn in range(8, 11):
        for number, chat in enumerate((one, other)):
            before = answer.started.prompt_tokens
            answer = chat.ask(f"{turn} {number}", max_tokens=8)
            assert answer.started.cached_tokens > before - 150 or answer.started.dropped_messages > dropped
            assert answer.started.cached_tokens > 0


def test_other_settings_take_nothing_from_the_disk(new_engine: Callable[..., Engine]) -> None:
    chat = Chat(engine := new_engine(on_disk=True))
    chat.ask(words(1, 100))
    engine.unload()
    for settings in ({"kv_type": "q8_0"}, {"context_length": 768}, {"micro_batch_size": 64}):
        chat.engine = new_engine(on_disk=True, **settings)
        assert chat.answer().started.cached_tokens == 0
        chat.engine.forget()


def test_another_file_of_the_same_size_and_time_takes_nothing_from_the_disk(
    new_engine: Callable[..., Engine], random_pair: Pair
) -> None:
    chat = Chat(engine := new_engine(on_disk=True))
    chat.ask(words(1, 100))
    engine.unload()
    target = random_pair[0]
    status, content = target.stat(), target.read_bytes()
    try:
        target.write_bytes(content[:-4000] + bytes(4000))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        chat.engine = new_engine(on_disk=True)
        assert chat.answer().started.cached_tokens == 0
    finally:
        target.write_bytes(content)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_nothing_is_left_after_forgetting(new_engine: Callable[..., Engine], tmp_path: Path) -> None:
    engine = new_engine(on_disk=True)
    one, other = Chat(engine), Chat(engine)
    one.ask(words(1, 100))
    engine.caches.set_limit(MIB)
    other.ask(words(2, 100))
    engine.unload()
    assert list((tmp_path / "saved").iterdir())
    engine = one.engine = other.engine = new_engine(on_disk=True)
    one.ask("And then?")
    other.ask("And then?")
    engine.forget()
    assert list((tmp_path / "saved").iterdir()) == []
    assert engine._sequence.tokens == []
    assert other.answer().started.cached_tokens == 0
    assert one.answer().started.cached_tokens < 20  # the words all chats begin with
    engine.forget()
    engine.unload()
    assert list((tmp_path / "saved").iterdir()) == []


def test_the_command_lines_engine_writes_nothing(random_pair: Pair, home: Path) -> None:
    engine = Engine()
    engine.load(Load(request=1, target=str(random_pair[0])), lambda _: None)
    Chat(engine).ask(words(1, 50))
    engine.unload()
    assert not list(home.rglob("*.kept"))


def test_no_token_of_a_chat_is_held_after_forgetting(new_engine: Callable[..., Engine]) -> None:
    """Looked for in all lists there are, whoever has them."""
    engine = new_engine()
    command = Generate(
        request=1,
        messages=[Message(role="user", content="qzv kwy xjq")],
        seed=3,
        max_tokens=40,
        drafter="model",
        draft_length=4,
    )
    for _ in engine.generate(command):
        pass
    assert engine._target is not None and engine._draft is not None
    spoken = engine._target.prompts.chat(command.messages).tokens[5:12]
    written = tokens_of(engine)[:7]

    def holders(run: list[int]) -> list[object]:
        lists = (
            one for one in gc.get_objects() if type(one) is list and one is not run and type((one or [""])[0]) is int
        )
        return [one for one in lists if any(one[i : i + len(run)] == run for i in range(len(one)))]

    assert holders(spoken) and holders(written)
    fed = engine._target.context._views[0]
    assert fed.any()
    engine.forget()
    gc.collect()  # it may be off in this process, as it is beside a window
    assert not holders(spoken) and not holders(written)
    assert not fed.any()


@pytest.mark.parametrize("own_question", [True, False], ids=["its question", "another question"])
def test_measuring_in_between_costs_the_chat_nothing(new_engine: Callable[..., Engine], own_question: bool) -> None:
    chat = Chat(engine := new_engine())
    chat.ask(words(1, 100))
    last = chat.ask(words(2, 30))
    question = chat.messages[:1] if own_question else [Message(role="user", content=words(3, 50))]
    engine.measure_plain(MeasurePlain(request=5, messages=question, sampling=WARM, max_tokens=20))
    after = chat.ask("And then?")
    assert after.started.cached_tokens >= last.started.prompt_tokens


@pytest.mark.parametrize("is_last", [False, True])
def test_a_deleted_chat_takes_nothing_from_the_others(new_engine: Callable[..., Engine], is_last: bool) -> None:
    """Whether its content is in the cache when it is deleted, or in a copy."""
    engine = new_engine()
    kept, gone = Chat(engine), Chat(engine)
    asked = [(kept, "kept"), (gone, "gone")]
    for number, (chat, name) in enumerate(asked if is_last else asked[::-1]):
        chat.ask(words(number, 100), chat=name)
    engine.forget(["gone"])
    assert engine._target is not None and not engine._target.context.tokens
    assert {copy.chat for copy in engine.caches.of(engine._target.owner)} <= {"kept"}
    assert kept.answer(chat="kept").started.cached_tokens > 100
    assert gone.answer(chat="gone").started.cached_tokens < 20  # the words all chats begin with


def test_files_of_a_deleted_chat_and_of_unknown_ones_go(new_engine: Callable[..., Engine], tmp_path: Path) -> None:
    engine = new_engine(on_disk=True)
    for number, name in enumerate(("kept", "gone", "")):
        Chat(engine).ask(words(number, 100), chat=name)
    engine.unload()
    written = list((tmp_path / "saved").iterdir())
    assert {chat_of(path) for path in written} == {"", "gone", "kept"}
    old = written[0].with_name("owner-0123456789abcdef.kept")  # as it was called before
    old.write_bytes(b"")
    assert chat_of(old) == ""
    new_engine(on_disk=True).forget(["gone"])
    assert {chat_of(path) for path in (tmp_path / "saved").iterdir()} == {"kept"}
