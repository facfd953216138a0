"""What an answer says: what was only thought is the answer, and a call in it is a call."""

from __future__ import annotations

import pytest

from app.protocol.commands import Generate
from app.protocol.events import Figures, GenerationFinished, ModelInfo, PairLoaded, Piece
from app.protocol.options import FinishReason
from app.protocol.tools import ToolUse
from app.server.answers import AnswerContent, Reader
from tests.support.tool_models import LIGHT, WEATHER

MODEL = ModelInfo(
    path="", name="", architecture="", quantization="", size_bytes=0, parameters=0, layers=0, training_context=0
)
PAIR = PairLoaded(request=1, target=MODEL, tool_format="hermes")
TOOLS = ToolUse(tools=[WEATHER, LIGHT])
CALL = '<tool_call>\n{"name": "switch-light", "arguments": {"on": true}}\n</tool_call>'
UNKNOWN = CALL.replace("switch-light", "drop_tables")


def whole(thinking: str, text: str = "", reason: FinishReason = "end", tools: ToolUse | None = TOOLS) -> AnswerContent:
    """Piece by piece, as a stream has it."""
    reader, parts = Reader(PAIR, Generate(request=1, messages=[], tools=tools)), list[AnswerContent]()
    for is_thinking, said in ((True, thinking), (False, text)):
        parts += [reader.read([Piece(text=letter, thinking=is_thinking)]) for letter in said]
    parts.append(reader.end(GenerationFinished(request=1, finish_reason=reason, figures=Figures())))
    calls = [call for part in parts for call in part.calls]
    assert reader.has_calls is bool(calls)
    return AnswerContent("".join(part.thinking for part in parts), "".join(part.text for part in parts), calls)


@pytest.mark.parametrize(
    ("thinking", "text", "reason", "said"),
    [
        ("So it is.", "", "end", "So it is."),
        ("So it is.", "\n\n", "end", "So it is."),
        ("So it is.", "Yes.", "end", "Yes."),
        ("So it is.", "", "length", ""),
        ("So it is.", "", "stop_string", ""),
        ("", "", "end", ""),
        ("Some write <tool_call> here.", "", "end", "Some write <tool_call> here."),
        (f"I could do {UNKNOWN}", "", "end", f"I could do {UNKNOWN}"),
    ],
)
def test_what_was_only_thought_is_the_answer(thinking: str, text: str, reason: FinishReason, said: str) -> None:
    found = whole(thinking, text, reason)
    assert (found.thinking, found.text.strip(), found.calls) == (thinking, said, [])
    assert whole(thinking, text, reason, None).text.strip() == said


def test_a_call_in_thinking_counts_only_where_nothing_else_is_said() -> None:
    (call,) = whole(f"I switch it on.\n\n{CALL}").calls
    assert (call.name, call.arguments) == ("switch-light", '{"on": true}')
    assert [one.name for one in whole(f"I switch it on.\n\n{CALL}", CALL).calls] == ["switch-light"]
    assert whole(f"I could do {CALL}", "Done.").calls == []
    assert whole(f"I could do {CALL}", reason="length").calls == []
