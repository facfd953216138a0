"""How models mark their thinking, and what text is once that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Format:
    """How thinking is marked by tags.

    Attributes:
        opening: In front of it.
        closing: Behind it.
        around: What the model may write in front of the answer and behind it then; hidden too.
        between: What stands between the two where the template does not tell; empty: the tag on a line of its own.
        tokens_only: Whether the tags count only where the vocabulary has tokens for them.
        is_usual: Whether they count where neither the template nor the vocabulary has them.
        spelled: ``closing`` without symbols.
        token: ``closing`` with symbols, where the model spelled ``opening`` although it has tokens.
        openings: ``opening`` with and without symbols.
        is_spelled: Whether ``opening`` is written without symbols.
    """

    opening: str
    closing: str
    around: tuple[str, ...] = ()
    between: str = ""
    tokens_only: bool = False
    is_usual: bool = False
    spelled: str = ""
    token: str = ""
    openings: tuple[str, ...] = ()
    is_spelled: bool = True


FORMATS = (
    Format(
        "<think>", "</think>", ("<response>", "</response>"), is_usual=True
    ),  # Qwen, DeepSeek, GLM, Kimi K2, SmolLM3, Granite …
    Format("<thinking>", "</thinking>"),
    Format("<thought>", "</thought>"),
    Format("<Thought>", "</Thought>"),
    Format("<reasoning>", "</reasoning>"),
    Format("<reason>", "</reason>"),
    Format("<seed:think>", "</seed:think>"),
    Format("<mm:think>", "</mm:think>"),  # MiniMax M3
    Format("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    Format("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
    Format("[THINK]", "[/THINK]", between="[/THINK]"),  # Mistral
    Format("◁think▷", "◁/think▷"),  # Kimi VL
    Format("<|begin_of_thought|>", "<|end_of_thought|>", ("<|begin_of_solution|>", "<|end_of_solution|>")),
    Format(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        between="<|END_THINKING|><|START_RESPONSE|>",
    ),  # Cohere
    Format("<|inner_prefix|>", "<|inner_suffix|>", between="<|inner_suffix|>", tokens_only=True),  # Apertus
    Format("<|channel>thought", "<channel|>", between="\n<channel|>", tokens_only=True),  # Gemma 4
    Format(
        "<|think|>",
        "<|end|><|begin|>assistant<|content|>",
        between="<|end|><|begin|>assistant<|content|>",
        tokens_only=True,
    ),  # Solar
    Format(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        between="<|close|>think<|sep|><|open|>response<|sep|>",
        tokens_only=True,
    ),  # Kimi K3
)


@dataclass(frozen=True)
class Channels:
    """The marks of channels, as symbols."""

    start: str
    channel: str
    message: str
    end: str


HARMONY = Channels("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"


class Run(NamedTuple):
    """Text that is decided."""

    text: str
    thinking: bool
    shown: bool
    """False for marks, and for the white space around them."""
    instead: str = ""
    """What is shown in place of a mark."""
