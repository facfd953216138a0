"""How llama.cpp's templates write calls, where SLIPSTREAM_VOCABULARIES names a folder ``models`` of its tree."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from app.engine.decoding.chat_template import ChatTemplate, TemplateInputs
from app.engine.decoding.prompt import ChatTokenizer
from app.engine.decoding.thinking_splitters import HARMONY
from app.engine.decoding.tools import as_models_write, found_format, written
from app.protocol.calls import CallReader, pattern_of
from app.protocol.commands import Message
from app.protocol.tools import FORMATS
from tests.engine.decoding.test_template_choice import Letters
from tests.support.hostile_calls import TOOL, calls

FOLDER = os.environ.get("SLIPSTREAM_VOCABULARIES", "")
PATHS = sorted(Path(FOLDER, "templates").glob("*.jinja")) if FOLDER else []
NEEDS_FILES = pytest.mark.skipif(not FOLDER, reason="SLIPSTREAM_VOCABULARIES names no folder with templates")
QUESTION = Message(role="user", content="Well?")


@NEEDS_FILES
def test_most_have_a_form_of_their_own() -> None:
    names = {path.stem: found_format(ChatTemplate(path.read_text(), "<s>", "</s>"))[0] for path in PATHS}
    assert sum(name != "general" for name in names.values()) >= min(len(names), 52)
    for model, form in (
        ("google-gemma-4-31B-it", "gemma"),
        ("openai-gpt-oss-120b", "harmony"),
        ("LFM2.5-8B-A1B", "lfm"),
    ):
        assert names[model] == form


PATHS_WITH_NULL = [path for path in PATHS if "Hermes" not in path.stem]
"""Those two never end with the type ``null``."""


@NEEDS_FILES
@pytest.mark.parametrize("path", PATHS_WITH_NULL, ids=lambda path: path.stem)
def test_what_the_template_writes_is_what_the_model_wrote(path: Path) -> None:
    tokenizer = ChatTokenizer(Letters(path.read_text(), *(HARMONY if "gpt-oss" in path.stem else ())))
    known, inputs = (
        FORMATS[tokenizer.tool_format],
        TemplateInputs(datetime(2026, 1, 1), {}, [TOOL], tokenizer.text_arguments),
    )
    for call in calls(known, 80):
        result = Message(role="tool", content="It is kept.", tool_call_id=call.id, tool_name=call.name)
        chat = [QUESTION, Message(role="assistant", content="", tool_calls=(call,)), result]
        prompt = "".join(map(chr, tokenizer.chat(chat, inputs)))
        text = as_models_write(known, written(known, [call], counted=False))
        if known.notation.sorts:  # where Gemma writes null, its template writes None
            prompt = prompt.replace("nothing:None", "nothing:null")
        found = re.search(pattern_of(text), prompt)
        if path.stem == "Reka-Edge" and not call.arguments.isascii():
            continue  # it writes escapes for other letters
        assert found, (text, prompt)
        reader = CallReader(known, [TOOL])
        shown, found_calls = reader.read(found[0])
        assert shown == "" and [json.loads(one.arguments) for one in found_calls] == [json.loads(call.arguments)]
