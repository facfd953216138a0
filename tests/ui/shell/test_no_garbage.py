"""A day of chatting leaves nothing to the garbage collector, which seldom looks at everything."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from app.ui.chat.markdown.code_blocks import highlighter
from app.ui.chat.markdown.formulas import formula_service
from app.ui.chat.model import ChatState
from app.ui.widgets.turns import turns
from tests.ui.shell.running import WAIT_MS, Running

TEXT = """Look:

```python
return 42
```

| a | b |
|---|---|
| 1 | $x^2$ |

$$\\frac{1}{2}$$
"""


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What the collector finds from `gc.collect` on; it isn't freed before the end of the test."""
    before = gc.get_threshold()
    gc.set_threshold(0, 0, 0)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.set_threshold(*before)
    gc.collect()


def settle(running: Running) -> None:
    running.done()
    running.qtbot.waitUntil(
        lambda: (
            running.model.state is ChatState.IDLE
            and running.model.writer.is_saved()
            and running.window.transcript.column.is_complete()
            and highlighter().is_idle
            and formula_service().is_idle
            and turns().is_idle()
        ),
        timeout=WAIT_MS,
    )


def chat(running: Running) -> None:
    """Two chats with an answer each, one with everything that can be in an answer; the older ones are erased."""
    for number in range(2):
        running.chats.new()
        running.ask(f"What is a draft model? {number}")
        settle(running)
        if number:
            running.model.edit(running.model.messages[-1].id, TEXT)
            settle(running)
    old = running.ctx.operations.chat_ids()[1:]
    running.ctx.operations.delete(old)
    running.ctx.operations.erase(old)
    settle(running)


@pytest.mark.usefixtures("guide_pair")
def test_chats_and_their_answers_leave_no_cycles(running: Running, garbage: list[object]) -> None:
    running.ready()
    chat(running)  # what is made once
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    for _ in range(2):
        chat(running)
    gc.collect()
    modules = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in garbage)
    assert {name: count for name, count in modules.items() if name.startswith(("app.", "PySide6."))} == {}
