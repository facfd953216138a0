"""What ChatGPT's export has besides plain questions and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.chats.formats import chatgpt
from app.chats.formats.chatgpt import without_marks
from app.chats.formats.records import ChatRecord, LeftOut
from app.chats.formats.turns import changed
from tests.chats.formats.test_formats import assert_sound, shown


def mark(*fields: str) -> str:
    return "\ue200" + "\ue202".join(fields) + "\ue201"


def node(parent: str | None, role: str, *parts: Any, kind: str = "text", **more: Any) -> dict[str, Any]:
    content = {"content_type": kind, "parts": list(parts), **more.pop("content", {})}
    message = {"author": {"role": role}, "content": content, "recipient": "all", "metadata": {}, **more}
    return {"parent": parent, "message": message}


def read(**nodes: dict[str, Any]) -> tuple[ChatRecord, dict[str, int]]:
    left_out = LeftOut()
    chat = chatgpt.read({"mapping": nodes, "current_node": list(nodes)[-1]}, left_out)
    assert_sound(chat)
    return chat, {reason: count for reason, count in left_out.items() if count}


def canvas(parent: str, to: str, **call: Any) -> dict[str, Any]:
    content = {"language": "json", "text": json.dumps(call)}
    return node(parent, "assistant", kind="code", content=content, recipient=f"canmore.{to}_textdoc")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("It was " + mark("entity", '["people","N. N.",0]') + ".", "It was N. N.."),
        (mark("entity", '["place","Café \\"Zur Post\\""]'), 'Café "Zur Post"'),
        (mark("entity", "Mara"), "Mara"),
        (mark("entity", '["people","Mara "Lind'), "Mara "),
        (mark("product_entity", '["turn0product1","Kettle"]'), "Kettle"),
        (mark("products", '{"selections":[["turn0product1","Kettle"],["turn0product2","Cup"]]}'), "Kettle, Cup"),
        (mark("url", "the archive", "https://example.org/a"), "[the archive](https://example.org/a)"),
        (mark("url", "see [1]", "https://example.org/a b"), "see [1]"),
        (mark("url", "the result", "turn0search0"), "the result"),
        (mark("link_title", "Example", "turn0search0"), "Example"),
        (mark("cite", "https://www.example.org/x"), "[www.example.org](https://www.example.org/x)"),
        (mark("cite", "Invincible", "turn0search0"), "Invincible"),
        (mark("video", "How to pour", "turn0youtube0"), "How to pour"),
        (mark("genui", '{"math_block_widget_v2":{"content":"a\\\\times b"}}'), "\n$$\na\\times b\n$$\n"),
        (mark("genui", '{"math_block_widget_always_prefetch_v2": {"content": "\\sqrt{2}"}}'), "\n$$\n\\sqrt{2}\n$$\n"),
        ("\ue203Tea is green.\ue204 Cut: \ue200entity\ue202[\"people\",\"Ma", "Tea is green. Cut: people"),
        ("no marks", "no marks"),
    ],
)  # fmt: skip
def test_marks_keep_what_a_reader_sees(written: str, wanted: str) -> None:
    left_out = LeftOut()
    assert without_marks(written, {}, left_out) == wanted
    assert not left_out


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (mark("cite", "turn0search1", "turn4view3"), "references"),
        (mark("filecite", "turn0file1", "L8-L13"), "references"),
        (mark("memcite"), "references"),
        (mark("navlist", "Latest news", "turn0news1"), "references"),
        ("【4:0†source】", "references"),
        (":contentReference[oaicite:0]{index=0}", "references"),
        (mark("image_group", '{"query":["tea"]}'), "images"),
        (mark("genui", '{"chart":{}}'), "widgets"),
        (mark("map"), "widgets"),
        (mark("finance", "turn0finance0"), "widgets"),
    ],
)
def test_marks_that_are_left_out_are_counted(written: str, reason: str) -> None:
    left_out = LeftOut()
    assert without_marks(f"Yes.{written}", {}, left_out) == "Yes."
    assert left_out == {reason: 1}


def test_references_to_sources_become_links() -> None:
    cited, grouped, old = mark("cite", "turn0search1"), mark("cite", "turn0search2"), "【57†L18-L22】"
    references = [
        {"matched_text": cited, "alt": "([a.org](https://a.org/))"},
        {"matched_text": grouped, "items": [{"title": "B", "url": "https://b.org/(x)"}, {"url": "javascript:x"}]},
        {"matched_text": old, "url": "https://c.org/", "title": "C"},
        {"matched_text": " ", "type": "sources_footnote", "alt": "nothing"},
    ]
    text = without_marks(f"One. {cited} Two.{grouped}{old}", {"content_references": references}, LeftOut())
    assert text == "One. ([a.org](https://a.org/)) Two. ([B](<https://b.org/(x)>)) ([C](https://c.org/))"


def test_documents_of_the_canvas_stand_in_the_answers() -> None:
    chat, left_out = read(
        q=node(None, "user", "Write a poem."),
        c=canvas("q", "create", name="poem", type="document", content="Tin roof,\nsoft rain."),
        t=node("c", "tool", "Successfully created", metadata={"canvas": {"textdoc_id": "1"}}),
        a=node("t", "assistant", "It is in the canvas."),
        more=node("a", "user", "Hard rain. And a program."),
        u=canvas("more", "update", updates=[{"pattern": "soft rain\\.", "replacement": "hard rain."}]),
        p=canvas("u", "create", name="rain.py", type="code/python", content="print('```')"),
        ok=node("p", "tool", "Successfully created"),
        b=node("ok", "assistant", "Done."),
        last=node("b", "user", "Change it."),
        x=canvas("last", "update", updates=[{"pattern": "(a+)+$", "replacement": "x"}]),
        y=canvas("x", "update", updates=[{"pattern": ".*", "multiple": True, "replacement": "print(2)\\n"}]),
    )  # fmt: skip
    assert [text for role, _, text in shown(chat) if role == "assistant"] == [
        "`poem`\n\n```markdown\nTin roof,\nsoft rain.\n```\n\nIt is in the canvas.",
        "`poem`\n\n```markdown\nTin roof,\nhard rain.\n```\n\n`rain.py`\n\n```python\nprint('```')\n```\n\nDone.",
        "`rain.py`\n\n```python\nprint(2)\\n\n```",  # nothing was said after it
    ]
    assert left_out == {"changes": 1}


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (".*", "X"),
        ("([\\s\\S]*)", "X"),
        ("b\\.", "a X b. c"),
        ("b.*", "a X"),
        ("a.*?c", "X"),
        ("d", None),
        ("a.*d", None),
        ("(a|b)+", None),
        ("\\w", None),
    ],
)
def test_changes_of_a_document(pattern: str, wanted: str | None) -> None:
    assert changed("a b. b. c", pattern, "X") == wanted


def test_what_was_thought_stays_even_without_an_answer() -> None:
    thoughts = {
        "thoughts": [{"summary": "Heat", "content": "It gets bitter."}, {"summary": "Only this", "content": ""}]
    }
    chat, _ = read(
        q=node(None, "user", "How hot?"),
        t=node("q", "assistant", kind="thoughts", content=thoughts),
        r=node("t", "assistant", kind="reasoning_recap", content={"content": "Thought for 2 s"}),
        a=node("r", "assistant", "80 °C."),
        b=node("r", "assistant", "90 °C."),
        n=node("b", "user", "Why?"),
        s=node("n", "assistant", "It burns.", kind="thoughts"),
    )
    thought = "It gets bitter.\n\nOnly this"
    assert shown(chat)[1:] == [("assistant", thought, "90 °C."), ("user", "", "Why?"), ("assistant", "It burns.", "")]
    assert [one.thinking for one in chat.messages if one.text == "80 °C."] == [thought]


def test_instructions_of_the_user_are_the_system_prompt() -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    own = {"about_user_message": "I grow tea.", "about_model_message": "Be brief."}
    chat, left_out = read(
        i=node(None, "user", kind="user_editable_context", content={"user_instructions": "long form of it"},
               metadata={**hidden, "user_context_message_data": own}),
        m=node("i", "user", kind="model_editable_context", content={"model_set_context": "1. Likes tea"}),
        q=node("m", "user", "How hot?"),
    )  # fmt: skip
    assert chat.settings == {"system_prompt": "I grow tea.\n\nBe brief."}
    assert left_out == {"hidden": 1}
    chat, _ = read(i=node(None, "user", content={"user_profile": "I grow tea.", "user_instructions": ""}))
    assert chat.settings == {"system_prompt": "I grow tea."}


def test_what_is_heard_and_seen_is_counted() -> None:
    image, audio = {"content_type": "image_asset_pointer"}, {"content_type": "audio_asset_pointer"}
    live = {"content_type": "real_time_user_audio_video_asset_pointer"}
    files = [{"name": "a.png", "mime_type": "image/png"}, {"name": "b.pdf", "mime_type": "application/pdf"}]
    chat, left_out = read(
        q=node(None, "user", image, {"content_type": "audio_transcription", "text": "How hot?"}, audio, live,
               metadata={"attachments": files}),
        alone=node("q", "user", image, metadata={"attachments": files[:1]}),
        d=node("alone", "tool", image, kind="multimodal_text"),
        e=node("d", "assistant", kind="code", content={"language": "python", "text": "1"}, recipient="python"),
        o=node("e", "tool", kind="execution_output", content={"text": "1"}),
        a=node("o", "assistant", "80 °C."),
    )  # fmt: skip
    assert shown(chat) == [("user", "", "How hot?"), ("assistant", "", "80 °C.")]
    assert [(one.name, one.arguments, one.result) for one in chat.branch()[1].calls] == [
        ("tool", "{}", ""),
        ("python", '{"input": "1"}', "1"),
    ]
    assert left_out == {"images": 3, "recordings": 2, "files": 1}
