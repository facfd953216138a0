"""The store's thread, and a process that is killed while an answer streams."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.system import KnownError
from tests.support.chats import add_question

_STREAMING = """
import sys
from pathlib import Path
from app.chats.worker import ChatWorker
from tests.support.chats import add_question, begin_answer

worker = ChatWorker(Path(sys.argv[1]))
chat = worker.submit(lambda store: store.create_chat()).result()
asked = worker.submit(lambda store: add_question(store, chat.id, None, "What was sent?")).result()
begun = worker.submit(lambda store: begin_answer(store, chat.id, asked.id)).result()
worker.submit(lambda store: store.set_unsent(chat.id, "the next question"))
text = ""
while True:
    text += "word "
    pieces = [[5, "model", 1, None]] * (len(text) // 5)
    worker.submit(lambda store: store.update_answer(begun.id, text, pieces)).result()
    print(len(text), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_nothing_sent_is_lost_when_the_process_is_killed(path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _STREAMING, str(path)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        stored = 0
        for _ in range(30):
            stored = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        for line in child.stdout:
            stored = int(line)

    worker = ChatWorker(path)
    assert worker.opened.result().notice is None
    (chat,) = worker.submit(lambda store: store.chats()).result()
    asked, answer = worker.submit(lambda store: store.branch(chat.id)).result()
    assert (chat.title, asked.text, asked.status) == ("What was sent?", "What was sent?", "complete")
    assert answer.status == "interrupted"
    assert len(answer.text) >= stored >= 150
    assert set(answer.text.split()) == {"word"}
    assert len(answer.provenance) * 5 == len(answer.text)
    assert worker.submit(lambda store: store.unsent(chat.id)).result() == "the next question"
    worker.close()


def test_tasks_run_in_order_in_one_thread_and_close_finishes_them(path: Path) -> None:
    worker = ChatWorker(path)
    threads = [worker.submit(lambda _: threading.current_thread().name) for _ in range(3)]
    chat = worker.submit(lambda store: store.create_chat("c")).result()

    def append(store: ChatStore, text: str) -> None:
        add_question(store, chat.id, store.chat(chat.id).leaf_id, text)

    for number in range(50):
        worker.submit(partial(append, text=str(number)))
    worker.close()
    worker.close()
    assert {future.result() for future in threads} == {"chats"}
    with ChatStore(path) as store:
        assert [message.text for message in store.branch(chat.id)] == [str(number) for number in range(50)]
    with pytest.raises(RuntimeError):
        worker.submit(lambda store: store.chats())


def test_opening_erases_what_was_deleted(path: Path) -> None:
    with ChatStore(path, clock=lambda: 0.0) as store:
        store.delete_chats([store.create_chat("c").id])
    worker = ChatWorker(path)
    assert worker.opened.result().may_have_copies
    worker.submit(ChatStore.finish_erasing)
    assert not worker.submit(ChatStore.has_to_erase).result()
    worker.close()


def test_a_store_that_another_program_uses_says_so_in_every_answer(path: Path) -> None:
    with ChatStore(path) as store:
        worker = ChatWorker(path)
        with pytest.raises(KnownError, match="Another program is using your chats"):
            worker.opened.result()
        with pytest.raises(KnownError, match="Another program"):
            worker.submit(lambda store: store.chats()).result()
        worker.close()
        assert store.create_chat("still works").title == "still works"


@pytest.mark.allow_logs
def test_a_bug_in_a_task_is_logged_and_the_thread_lives_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = ChatWorker(path)
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda _: 1 // 0).result()
    assert worker.submit(lambda store: store.chats()).result() == []
    worker.close()
    assert "a task of the chat store failed" in caplog.text
