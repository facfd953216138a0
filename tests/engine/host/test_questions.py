from __future__ import annotations

import threading

from app.engine.host.engine import Answer, Engine
from app.engine.host.worker import Questions
from app.protocol.commands import CheckText, CountTokens, Message, Tokenize
from app.system import KnownError
from tests.support.pairs import Loader, Pair

CHAT = [Message(role="user", content="hello " * 50), Message(role="assistant", content="there " * 50)]


def test_of_the_counts_that_wait_only_the_newest_is_answered(loaded: Engine) -> None:
    answered: list[int] = []
    is_over = threading.Event()

    def send(event: Answer) -> None:
        answered.append(event.request)
        if event.request == 5:
            is_over.set()
            raise BrokenPipeError  # which ends the thread

    questions = Questions(loaded.answer, send)
    questions.ask(CountTokens(request=1, messages=CHAT))
    questions.ask(CheckText(request=2, text="one"))
    questions.ask(CountTokens(request=3, messages=CHAT))
    questions.ask(CheckText(request=4, text="two"))
    questions.ask(CountTokens(request=5, messages=CHAT, text="typed"))
    questions.start()
    assert is_over.wait(60)
    assert answered == [2, 4, 5]


def test_the_tokens_of_a_text(loaded: Engine) -> None:
    plain = loaded.tokenize(Tokenize(request=1, text="hello there"))
    with_bos = loaded.tokenize(Tokenize(request=2, text="hello there", bos=True))
    assert b"".join(plain.pieces).decode().strip() == "hello there"
    assert with_bos.tokens == [1, *plain.tokens]
    assert len(loaded.tokenize(Tokenize(request=3, text="</s>")).tokens) == 1
    assert len(loaded.tokenize(Tokenize(request=4, text="</s>", special=False)).tokens) > 1


def test_models_come_and_go_while_tokens_are_counted(engine: Engine, load: Loader, random_pair: Pair) -> None:
    is_over, counted, refused = threading.Event(), [0], [0]

    def count() -> None:
        while not is_over.is_set():
            try:
                engine.count_tokens(CountTokens(request=1, messages=CHAT, text=f"again {counted[0]}"))
                engine.check_text(CheckText(request=1, text="again " * 500))
                counted[0] += 1
            except KnownError:
                refused[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(2):
            load(random_pair[0])
            before = counted[0]
            while counted[0] < before + 3:
                assert thread.is_alive()
            engine.unload()
    finally:
        is_over.set()
        thread.join()
    assert counted[0] >= 6 and refused[0] > 0
