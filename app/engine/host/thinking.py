"""How a loaded target thinks, as far as its chat template and its vocabulary tell."""

from __future__ import annotations

from app.engine.decoding.prompt import PromptBuilder
from app.engine.decoding.sequence import shared_prefix
from app.engine.decoding.thinking import Marks, Vocabulary
from app.engine.decoding.thinking_levels import between, levels
from app.errors import KnownError
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables

_QUESTION = Message(role="user", content="Well?")
_ANSWER = Message(role="assistant", content="So.", thinking="Hm.")


class ModelThinking:
    """Levels, marks, and what the template makes of thinking in earlier turns."""

    def __init__(self, prompts: PromptBuilder, vocabulary: Vocabulary) -> None:
        self._prompts = prompts
        template = prompts.tokenizer.template
        self.levels = levels(template)
        """What can be asked for; empty where there is no choice."""
        self.marks = Marks(vocabulary, template.source)
        self.may_think = bool(self.levels) or self.marks.are_expected
        self.between = between(template, self.levels.get("on", {}))
        """What the template writes between thinking and answer; empty where that is not known."""
        self._unshared: dict[str, int] = {}

    def variables(self, level: str, others: TemplateVariables) -> TemplateVariables:
        """The template's variables that ask for a ``level``, and ``others``. Raises `KnownError`."""
        if level and level not in self.levels:
            choice = f"It can be {', '.join(self.levels)}." if self.levels else "It can't be chosen with this model."
            raise KnownError(f"The model's chat template doesn't know the thinking level “{level}”. {choice}")
        return {**self.levels.get(level, {}), **others}

    def unshared(self, variables: TemplateVariables) -> int:
        """How many tokens at the end of a prompt the next turn's prompt won't have: most templates leave out thinking,
        and with it the mark that they begin it with."""
        key = repr(sorted(variables.items()))
        if key not in self._unshared:
            self._unshared[key] = self._count_unshared(variables)
        return self._unshared[key]

    def _count_unshared(self, variables: TemplateVariables) -> int:
        inputs = self._prompts.inputs([], variables)
        try:
            chats = [_QUESTION], [_QUESTION, _ANSWER, _QUESTION]
            first, second = (self._prompts.tokenizer.chat(chat, inputs) for chat in chats)
        except KnownError:
            return 0
        return len(first) - shared_prefix(first, second)
