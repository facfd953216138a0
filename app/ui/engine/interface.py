"""What the window knows about an engine: one small interface.

`LocalEngine` (in ``local_engine.py``) is its first implementation, a child process. Nothing here depends on that.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.client.connection import Question
from app.client.state import EngineExit, EngineState, ExitCause
from app.protocol.commands import CountTokens
from app.protocol.events import Hello
from app.protocol.limits import HeadChoice
from app.protocol.options import LoadSettings
from app.protocol.remote import Connect
from app.protocol.serving import AsideQuestion

__all__ = ["Engine", "EngineExit", "EngineState", "ExitCause"]


class Engine(QObject):
    """An engine that loads pairs and answers chats, one thing at a time.

    Commands return the number of their request at once; what comes of it arrives by signal. Events of requests that are
    no longer current are never emitted; whoever did not make the current one compares its number.

    Signals:
        load_progressed … tokens_scored: An event with this tag, as `app.protocol.events` has it.
        tokens_counted, text_checked, prompt_counted, tokenized: A `TokensCounted`, `TextChecked`, `PromptCounted` or
            `Tokenized`; ``request`` is the number of the question.
        state_changed: The new `EngineState`.
        memory_read: A `MemoryRead`, when the engine has started and after each `read_memory`.
        engine_exited: An `EngineExit`; only for ends nobody asked for.
        forgotten: Everything `forget` was asked for so far has been erased.
        engine_stalled: Seconds without a sign of life; at most once a request.
    """

    load_progressed = Signal(object)
    pair_loaded = Signal(object)
    load_failed = Signal(object)
    generation_started = Signal(object)
    prompt_progressed = Signal(object)
    rounds_received = Signal(object)
    generation_finished = Signal(object)
    generation_failed = Signal(object)
    plain_measured = Signal(object)
    tokens_scored = Signal(object)
    tokens_counted = Signal(object)
    text_checked = Signal(object)
    prompt_counted = Signal(object)
    tokenized = Signal(object)
    memory_read = Signal(object)
    state_changed = Signal(EngineState)
    engine_exited = Signal(object)
    forgotten = Signal()
    engine_stalled = Signal(float)

    def state(self) -> EngineState:
        raise NotImplementedError

    def hello(self) -> Hello | None:
        """The greeting of the running engine; ``None`` before it arrives."""
        raise NotImplementedError

    def description(self) -> str:
        """Name and version for About; empty before the greeting."""
        hello = self.hello()
        return hello.engine if hello else ""

    def devices(self) -> list[str]:
        """GPUs it can offload to, by description."""
        hello = self.hello()
        return [device.description for device in hello.devices] if hello else []

    def read_memory(self) -> None:
        """Ask for the current memory, in every state; there is no answer if nothing runs here."""
        raise NotImplementedError

    def start(self) -> None:
        """Start what computes here, without loading anything; leaves a server. Does nothing if it is running."""
        raise NotImplementedError

    def load(
        self,
        target: str,
        draft: str | None,
        settings: LoadSettings,
        head: HeadChoice = "auto",
        projector: str | None = None,
        template: str = "",
    ) -> int:
        """Load a pair; starts the engine if necessary and drops what was loaded or being loaded.

        ``draft`` may be a file with the target's MTP head; ``head`` is about a head inside the target. ``projector``:
        with what the target sees images. ``template``: as `Load.chat_template`.
        """
        raise NotImplementedError

    def connect_server(self, command: Connect) -> int:
        """Use a model on a server, as `load` does: `pair_loaded` or `load_failed` follows."""
        raise NotImplementedError

    def ask(self, question: Question, *, compared: bool = False, served: bool = False) -> int:
        """Have the loaded pair compute something. Only allowed when the state is ``READY``.

        ``compared``: the answer is for the Compare window and belongs to no chat; the state is ``COMPARING`` meanwhile.
        ``served``: the same for another program, ``SERVING``.
        Returns 0 if this engine can't do what is requested; nothing follows then.
        """
        raise NotImplementedError

    def count_tokens(self, question: CountTokens) -> int:
        """Ask how much of the context a chat would take, even while it computes; ``request`` is filled in.

        Returns the number of the question; 0 if nothing is loaded. `tokens_counted` follows unless a newer count is
        requested, the template refuses the chat, or the engine ends or loads something else.
        """
        raise NotImplementedError

    def check_text(self, text: str, thought: str = "", thinking: str = "") -> int:
        """Ask for tokens that give exactly ``text``, to continue an answer whose own tokens are unknown.

        ``thought``: what the model thought before it; ``thinking``: how much it is asked to think.

        Returns the number of the question; 0 if nothing is loaded. `text_checked` follows unless the engine ends or
        loads something else.
        """
        raise NotImplementedError

    def ask_aside(self, question: AsideQuestion) -> int:  # noqa: ARG002
        """Ask something about the loaded pair, even while it computes; any number of questions at a time.

        Returns the number of the question; 0 if nothing is loaded that could answer it, which is always so for an
        engine that doesn't tell its tokens. `text_checked`, `prompt_counted` or `tokenized` follows unless the engine
        ends or loads something else.
        """
        return 0

    def stop_thinking(self) -> None:
        """Have the model answer now if it is still thinking; nothing happens otherwise."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop what is running, if anything."""
        raise NotImplementedError

    def forget(self) -> None:
        """Erase everything left of chats except the chats themselves; allowed in every state. `forgotten` follows."""
        raise NotImplementedError

    def restart(self) -> None:
        """End the engine, by force if necessary, and start a new one with nothing loaded."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End the engine, by force if necessary; returns when it is gone."""
        raise NotImplementedError
