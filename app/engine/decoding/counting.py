"""Counts the tokens of a chat including what is being typed, while another thread computes with the same model.

What would be sent is rendered and counted. The part before the typed text is counted once: a keystroke costs the same
in a chat of any length, except for reading its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from app.engine.decoding.chat_template import TemplateInputs
from app.engine.decoding.prompt import PromptBuilder, content_of, parts, unheard_of
from app.protocol.commands import CountTokens, Message
from app.protocol.events import TokensCounted
from app.protocol.options import TemplateVariables

_REMEMBERED_FRAMES = 8
_NOTHING = Message(role="user", content="")


@dataclass(frozen=True)
class _Frame:
    """A chat without the text of its last message."""

    before: int
    """Tokens up to the last control token, or line, before that text."""
    seam: str
    """What the template writes between there and the text."""
    after: str


class TokenCounter:
    """Counts tokens for one loaded target, one thread at a time. Raises `KnownError` once the model is closed."""

    def __init__(self, prompts: PromptBuilder) -> None:
        """``prompts`` decides what would be left out."""
        self._prompts = prompts
        self._tokenizer = prompts.tokenizer
        self._frames: dict[int, _Frame | None] = {}
        """By a hash of the messages; the most recently used one comes last."""

    def count(self, command: CountTokens, variables: TemplateVariables) -> TokensCounted:
        """``variables`` of the template. Raises `KnownError` if it fails."""
        system, turns = parts(command.messages)
        text = Message(role="user", content=command.text.strip(), images=command.images)
        before = list(turns)
        if turns and turns[-1].role != "assistant":  # some templates don't allow two questions in a row
            before.append(Message(role="assistant", content=""))
        tools = command.tools.tools if command.tools else ()
        inputs = self._prompts.inputs(command.messages, variables, tools)

        def length(kept: list[Message]) -> int:
            return self._tokens([*system, *kept[:-1]], text, inputs) + command.attached

        cut = self._prompts.fitting.cut(system, [*before, text], command.overflow, length)
        kept = cut.kept([*before, text])[:-1]
        bare = self._tokens([], _NOTHING, inputs)
        bare_without_tools = self._tokens([], _NOTHING, replace(inputs, tools=())) if tools else bare
        own = self._tokens(system, _NOTHING, inputs) - bare if system else 0
        without = self._tokens([*system, *kept], _NOTHING, inputs)
        has_text = bool(text.content or text.images)
        typed = self._tokens([*system, *kept], text, inputs) - without + bare_without_tools if has_text else 0
        dropped = min(cut.end, len(turns)) - cut.first
        word = unheard_of()
        return TokensCounted(
            request=command.request,
            system=max(own, 0),
            messages=max(without - max(own, 0) - bare, 0),
            text=typed + command.attached,
            context_length=self._prompts.fitting.context_length,
            dropped=dropped,
            first_dropped=len(system) + cut.first if dropped else 0,
            parts=[len(self._tokenizer.tokens((word, {word: part}), goes_on=True)) for part in command.parts],
            images=[len(self._tokenizer.images([image])) for image in command.images],
            tools=bare - bare_without_tools,
        )

    def forget(self) -> None:
        """Forget earlier chats."""
        self._frames = {}

    def _tokens(self, messages: Sequence[Message], text: Message, inputs: TemplateInputs) -> int:
        """The length of the prompt for ``messages`` and this one from the user."""
        frame = self._frame(messages, inputs)
        if frame is None:
            return len(self._tokenizer.chat([*messages, text], inputs))
        shown, hidden = self._tokenizer.content(text)
        rest = f"{frame.seam}{shown}{frame.after}"
        return frame.before + len(self._tokenizer.tokens((rest, hidden), goes_on=frame.before > 0))

    def _frame(self, messages: Sequence[Message], inputs: TemplateInputs) -> _Frame | None:
        """``None`` if the template doesn't write the last message exactly once."""
        texts = (
            (one.role, content_of(one), one.thinking, one.tool_calls, one.tokens, one.tool_name) for one in messages
        )
        others = inputs.now.date(), msgspec.json.encode(inputs.tools), *inputs.variables.items()
        key, frames = hash((*others, *texts)), self._frames
        if key in frames:
            frame = frames.pop(key)
        else:
            frame = self._new_frame(messages, inputs)
            if len(frames) >= _REMEMBERED_FRAMES:
                del frames[next(iter(frames))]
        frames[key] = frame
        return frame

    def _new_frame(self, messages: Sequence[Message], inputs: TemplateInputs) -> _Frame | None:
        word = unheard_of()
        whole, hidden = self._tokenizer.prompt([*messages, Message(role="user", content=word)], inputs)
        before, *others = whole.split(word)
        if len(others) != 1:
            return None
        controls = [match.start() for match in self._tokenizer.controls.finditer(before)]
        seam = controls[-1] if controls else before.rfind("\n") + 1
        if any(other in before[seam:] for other in hidden):
            return None
        tokens = self._tokenizer.tokens((before[:seam], hidden)) if seam else []
        return _Frame(len(tokens), before[seam:], others[0])
