"""What the model sees of answers with tool calls, and what of them goes on."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from app.chats.database import MEMORY
from app.chats.model import Attachment, CallState, StoredCall, StoredMessage, calls_to_json, pack, to_json
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Message
from app.protocol.events import Figures, GenerationFinished, ModelInfo, PairLoaded, Piece, Round, RoundsReceived
from app.protocol.options import AnswerFormat
from app.protocol.tools import ToolCall, ToolFormatName
from app.tools.messages import ServerTool
from app.tools.offered import OfferedTool
from app.ui.chat.conversation import can_continue, conversation, ends_with_calls, last_turn
from app.ui.chat.live_answer import LiveAnswer, tool_use
from app.ui.chat.writer import edited_answer
from app.ui.engine.pair_names import guide_files
from tests.chats.formats.test_tool_calls import DATA as TOOL_CALLS
from tests.chats.test_importing import import_all

QUESTION = StoredMessage("q", "chat", None, "user", "Rain?", "complete", 1.0)
RADAR = Attachment("a" * 64, "image", "radar.png", 5, "image/png", 1, 1, path="radar.png")
WEATHER = OfferedTool("sky", ServerTool(name="weather"), "weather", "1")


def call(identity: str, tokens: int, text: int = 0, thinking: int = 0, **others: object) -> StoredCall:
    made = StoredCall(id=identity, name="weather", tokens=tokens, text=text, thinking=thinking, state="done")
    return msgspec.structs.replace(made, **{"result": f"result {identity}"} | others)


def answer(text: str, *calls: StoredCall, **others: object) -> StoredMessage:
    known = {"calls_json": calls_to_json(calls), "status": "complete", "pair": "Answer"} | others
    return replace(StoredMessage("a", "chat", "q", "assistant", text, "complete", 2.0), **known)  # type: ignore[arg-type]


def pair(tool_format: ToolFormatName = "hermes", projector: str | None = None, path: str = "/m.gguf") -> PairLoaded:
    return PairLoaded(request=1, target=ModelInfo(path=path, name="m"), tool_format=tool_format, projector=projector)


def shown(*messages: StoredMessage) -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in conversation(messages).messages]


def test_each_call_is_followed_by_its_result_and_then_by_what_was_written_next() -> None:
    made = answer(
        "Let me look.\n\nAnd there.\n\nYes.",
        call("one", 4, 12, 3),
        call("two", 4, 12, 3, arguments='{"place": "Oslo"}'),
        call("three", 9, 24, 8),
        thinking="Hm.\n\nSo.\n\nDone.",
        tokens=range(20),
    )
    _, first, *results, second, third, last = conversation([QUESTION, made]).messages
    assert (first.content, first.thinking, first.tokens) == ("Let me look.", "Hm.", (0, 1, 2, 3))
    assert [(one.role, one.content) for one in results] == [("tool", "result one"), ("tool", "result two")]
    assert [one.tool_call_id for one in results] == [one.id for one in first.tool_calls]
    assert [one.arguments for one in first.tool_calls] == ["{}", '{"place": "Oslo"}']
    assert (second.content, second.thinking, second.tokens) == ("And there.", "So.", (4, 5, 6, 7, 8))
    assert (third.tool_name, third.content) == ("weather", "result three")
    assert (last.content, last.thinking, last.tokens, last.tool_calls) == ("Yes.", "Done.", (), ())


@pytest.mark.parametrize(
    "state, result, told",
    [
        ("done", "Sunny.", "Sunny."),
        ("done", "", "The tool returned nothing."),
        ("failed", "No network.", "The call failed. No network."),
        ("denied", "Not there!", "The user denied this call. Not there!"),
        ("denied", "", "The user denied this call."),
        ("stopped", "", "The call was stopped before it had a result."),
        ("running", "", "The call was stopped before it had a result."),
    ],
)
def test_a_call_has_a_result_whatever_came_of_it(state: CallState, result: str, told: str) -> None:
    made = answer("", call("one", 4, state=state, result=result))
    assert shown(QUESTION, made)[2:] == [("tool", told)]


def test_turns_of_one_side_are_joined_but_never_results() -> None:
    first, second = answer("Sure."), answer("Look.\n\nYes.", call("one", 3, 5), call("two", 3, 5), id="b")
    third = answer("No.", id="c")
    assert shown(QUESTION, QUESTION, first, second, third) == [
        ("user", "Rain?\n\nRain?"),
        ("assistant", "Sure.\n\nLook."),
        ("tool", "result one"),
        ("tool", "result two"),
        ("assistant", "Yes.\n\nNo."),
    ]
    joined = conversation([QUESTION, first, second]).messages[1]
    assert len(joined.tool_calls) == 2 and joined.tokens == ()


def test_what_templates_cannot_read_is_made_so() -> None:
    made = answer("", call("call_0123456789", 2, arguments="[1"), call("abcdefghi", 2, arguments='{"a": 1e999}'))
    _, turn, *results = conversation([QUESTION, made]).messages
    assert [one.arguments for one in turn.tool_calls] == ['{"arguments":"[1"}', '{"a": 1e999}']
    assert all(len(one.id) == 9 and one.id.isalnum() for one in turn.tool_calls)  # Mistral's templates insist
    assert [one.tool_call_id for one in results] == [one.id for one in turn.tool_calls]
    assert turn.tool_calls[1].id == "abcdefghi"


def test_images_go_with_their_result_or_are_named() -> None:
    seen = call("one", 2, images=(RADAR.sha256,))
    made = answer("Yes.", seen, call("two", 2), attachments=(RADAR,))
    whole = conversation([QUESTION, made])
    _, turn, first, second, last = whole.fit_for(pair(projector="p.gguf")).messages
    assert [len(one.images) for one in (turn, first, second, last)] == [0, 1, 0, 0]
    blind = whole.fit_for(pair()).messages
    assert blind[2].content == "result one\n\n(The tool also returned an image, which you can't see.)"
    assert not any(one.images for one in blind)


def test_another_models_tokens_mean_nothing() -> None:
    made = [QUESTION, answer("", call("one", 3), tokens=[1, 2, 3], pair="m")]
    assert conversation(made).fit_for(pair()).messages[1].tokens == (1, 2, 3)
    other = PairLoaded(request=1, target=ModelInfo(path="/o.gguf", name="other"))
    assert conversation(made).fit_for(other).messages[1].tokens == ()


def test_the_first_message_in_the_context_is_the_stored_one() -> None:
    made = answer("Yes.", call("one", 3), call("two", 5))
    later = replace(QUESTION, id="later", text="And now?")
    whole = conversation([QUESTION, made, later], "Be brief.")
    roles = ["system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    assert [one.role for one in whole.messages] == roles
    assert whole.first_in_context(1, 6) == "later"


# ------------------------------------------------------------ what arrives


def live_answer(form: ToolFormatName = "hermes", **options: object) -> LiveAnswer:
    live = LiveAnswer([QUESTION], ChatSettings(), **options)  # type: ignore[arg-type]
    live.begin(AnswerSettings(), pair(form), [WEATHER])
    return live


def feed(live: LiveAnswer, *texts: str, first: int = 0, thinking: bool = False) -> str:
    """Each text as a token; returns what is told of them."""
    told: list[Round] = []
    live.rounds_received.connect(told.extend)
    for place, text in enumerate(texts, first):
        one = Round(index=place, verify_passes=1, tokens=1, pieces=[Piece(text=text, id=place, thinking=thinking)])
        live.on_rounds_received(RoundsReceived(request=1, rounds=[one]))
    live.rounds_received.disconnect()
    return "".join(piece.text for one in told for piece in one.pieces)


def finished(reason: str = "end", **others: object) -> GenerationFinished:
    return GenerationFinished(request=1, finish_reason=reason, figures=Figures(), **others)  # type: ignore[arg-type]


HERMES = ("Let ", "me. ", "<tool", "_call>\n", '{"name": "weather", ', '"arguments": {}}\n', "</tool_call>", "")


def test_a_calls_text_is_not_shown_and_each_token_has_its_place() -> None:
    live = live_answer()
    assert feed(live, *HERMES) == "Let "
    assert live.is_writing_call and not live.calls
    assert live.takes_calls(finished())
    (made,) = live.calls
    assert (made.name, made.server, made.text, made.tokens, made.state) == ("weather", "sky", 7, 8, "asked")
    assert (live.text(), live.tokens(), live.is_writing_call) == ("Let me.", list(range(8)), False)
    assert [len(piece.text) for piece in live.pieces] == [4, 3, 0, 0, 0, 0, 0, 0]
    live.set_call(msgspec.structs.replace(made, state="done", result="Sun."))
    command = live.begin(AnswerSettings(), pair(), [WEATHER])
    assert command.continued == [] and command.messages[1].tokens == tuple(range(8))
    assert feed(live, "It ", "rains.", first=8) == "\n\nIt rains."
    live.on_finished(finished())
    assert live.message is not None
    assert (live.message.text, len(live.message.provenance)) == ("Let me.\n\nIt rains.", 10)
    assert shown(QUESTION, live.message)[1:] == [("assistant", "Let me."), ("tool", "Sun."), ("assistant", "It rains.")]


def test_a_token_with_text_and_the_beginning_of_a_call_keeps_its_text() -> None:
    live = live_answer()
    feed(live, "Yes", ".<tool_call>\n", '{"name": "weather", "arguments": {}}\n</tool_call>')
    assert live.takes_calls(finished())
    assert (live.text(), live.tokens()) == ("Yes.", [0, 1, 2])


@pytest.mark.parametrize("until", range(2, len(HERMES)))
@pytest.mark.parametrize("reason", ["cancelled", "length", "context", "stop_string"])
def test_of_a_call_that_was_cut_nothing_stays(until: int, reason: str) -> None:
    live = live_answer()
    feed(live, *HERMES[:until])
    assert not live.takes_calls(finished(reason))
    live.on_finished(finished(reason, stop_overlap=3 if reason == "stop_string" and until > 3 else 0))
    made = live.message
    assert made is not None and made.text in ("Let me. ", "Let me.", "Let ")
    assert len(made.tokens) == len(made.provenance) <= 2 and not made.calls
    if reason != "stop_string":
        again = live_answer(continued=made)
        feed(again, *HERMES[len(made.tokens) :], first=len(made.tokens))
        assert again.takes_calls(finished())
        assert (again.text().rstrip(), again.tokens()) == ("Let me.", list(range(8)))


def test_what_only_begins_like_a_call_is_text() -> None:
    live = live_answer()
    feed(live, "a <tool", "box> b", " <tool_ca")
    live.on_finished(finished())
    assert live.message is not None and live.message.text == "a <toolbox> b <tool_ca"
    assert len(live.message.tokens) == 3


@pytest.mark.parametrize("form", ["hermes", "mistral", "llama", "qwen-xml"])
def test_any_pieces_of_any_answer_have_the_same_text_and_all_tokens(form: ToolFormatName) -> None:
    dice = random.Random(form)
    texts = {
        "hermes": 'Look. \n<tool_call>\n{"name": "weather", "arguments": {"a": "ü"}}\n</tool_call>',
        "mistral": 'Look.\n[TOOL_CALLS]weather[ARGS]{"a": "ü"}',
        "llama": '\n{"name": "weather", "parameters": {"a": "ü"}}',
        "qwen-xml": "Look.<tool_call>\n<function=weather>\n<parameter=a>\nü\n</parameter>\n</function>\n</tool_call>",
    }
    for _ in range(60):
        text, parts = texts[form], list[str]()
        while text:
            length = dice.randint(0, 7)
            parts.append(text[:length])
            text = text[length:]
        live = live_answer(form)
        feed(live, *parts)
        assert live.takes_calls(finished())
        assert live.text().strip() in ("Look.", "") and len(live.tokens()) == len(parts) == live.calls[0].tokens
        assert live.calls[0].arguments.replace(" ", "") == '{"a":"ü"}'


def test_a_call_that_was_only_thought_is_a_call() -> None:
    live = live_answer()
    feed(live, "Hm. ", '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>', thinking=True)
    assert live.takes_calls(finished())
    assert (live.text(), live.thinking(), len(live.calls), live.tokens()) == ("Hm.", "", 1, [0, 1])


def test_a_servers_calls_have_a_place_and_an_id_of_their_own() -> None:
    live = live_answer()
    for _ in range(2):
        assert live.takes_calls(finished(tool_calls=[ToolCall("same", "weather", "{}")]))
        live.calls = [msgspec.structs.replace(one, state="done") for one in live.calls]
    assert len({one.id for one in live.calls}) == 2 and len({one.tokens for one in live.calls}) == 2


# ------------------------------------------------------------ what goes on, and what is edited


def test_an_answer_that_ends_with_calls_goes_on_without_tokens() -> None:
    cut = answer("Look.", call("one", 5, 5, state="stopped"), status="stopped", pair="other")
    assert can_continue(cut) and ends_with_calls(cut) and last_turn(cut) == ("", "")
    live = LiveAnswer([QUESTION], ChatSettings(), continued=cut)
    live.prepare(AnswerSettings(), pair(), [WEATHER])
    assert [one.state for one in live.calls] == ["asked"] and live.is_asking
    live.set_call(msgspec.structs.replace(live.calls[0], state="done", result="Sun."))
    command = live.begin(AnswerSettings(), pair(), [WEATHER])
    assert command.messages[-1].content == "Sun." and command.continued == []
    assert feed(live, "Yes.", first=5) == "\n\nYes."
    live.on_finished(finished())
    assert live.message is not None and live.message.text == "Look.\n\nYes."


def test_tokens_that_were_found_later_are_those_behind_the_calls() -> None:
    done = call("one", 6, 5)
    cut = answer("Look.\n\nYes", done, status="stopped", provenance_json="[]", tokens=[8, 9])
    live = LiveAnswer([QUESTION], ChatSettings(), continued=cut)
    assert live.begin(AnswerSettings(), None).continued == [8, 9]
    assert (live.text(), len(live.pieces), live.tokens()) == ("Look.\n\nYes", 8, [])


def test_tokens_of_an_interrupted_answer_are_never_taken_from_its_calls() -> None:
    pieces = [Piece(text="Look."), Piece(text=""), Piece(text=""), Piece(text="")]
    cut = answer(
        "Look.",
        call("one", 3, 5),
        status="interrupted",
        tokens=[1, 2, 3, 4],
        provenance_json=to_json(pack(pieces)),
    )
    live = LiveAnswer([QUESTION], ChatSettings(), continued=cut)
    live.begin(AnswerSettings(), None)
    assert live.tokens() == [1, 2, 3]


@pytest.mark.parametrize(
    "text, places",
    [
        ("One.\n\nTwo.\n\nThree.", (4, 10)),
        ("One!!\n\nTwo.\n\nThree.", (5, 11)),
        ("One.\n\nTwo.\n\nThree and more.", (4, 10)),
        ("Three.", (0, 0)),
        ("One.\n\n2.\n\nThree.", (4, 8)),
        ("Something else", (14, 14)),
        ("", (0, 0)),
    ],
)
def test_the_calls_of_an_edited_answer_stay_between_the_same_words(text: str, places: tuple[int, ...]) -> None:
    old = answer("One.\n\nTwo.\n\nThree.", call("one", 2, 4), call("two", 4, 10), tokens=range(6))
    made = edited_answer(old, text)
    assert tuple(one.text for one in made.calls) == places and list(made.tokens) == []
    turns = [one.content for one in conversation([QUESTION, made]).messages if one.role == "assistant"]
    assert "".join(turns).replace("\n\n", "") == text.replace("\n\n", "")


# ------------------------------------------------------------ what can't go together


def test_tools_go_with_text_and_with_json_where_calls_can_be_told_from_it() -> None:
    json, regex = AnswerFormat(kind="json_object"), AnswerFormat(kind="regex", source="a")
    assert tool_use(None, pair(), [WEATHER]) and not tool_use(None, pair(), [])
    assert tool_use(json, pair("hermes"), [WEATHER])
    assert tool_use(json, pair("llama"), [WEATHER]) is None
    assert tool_use(regex, pair(), [WEATHER]) is None


def test_the_guide_gets_no_tools() -> None:
    guide = pair(path=guide_files().target)
    assert tool_use(None, guide, [WEATHER]) is None


def test_messages_of_a_chat_without_calls_are_as_ever() -> None:
    assert conversation([QUESTION, answer("Yes.")]).messages == [
        Message(role="user", content="Rain?", sent_at=1.0),
        Message(role="assistant", content="Yes.", sent_at=2.0),
    ]


def test_calls_of_other_apps_are_asked_again_like_ours() -> None:
    """Each call is followed by its result, and the text stands where it stood."""
    with ChatStore(MEMORY) as store:
        import_all(store, TOOL_CALLS)
        for chat in store.chats():
            asked = conversation(store.branch(chat.id)).messages
            results = [one.tool_call_id for one in asked if one.role == "tool"]
            assert results == [call.id for one in asked for call in one.tool_calls] != []
            for before, after in pairwise(asked):
                assert after.role == "tool" if before.tool_calls else before.role != after.role or after.role == "tool"
            told = [one.content for one in asked if one.role == "assistant"]
            assert told[-1].split()[-2:] in (["80", "°C."], ["Older."], [])
            assert all(one.tokens == () for one in asked)
