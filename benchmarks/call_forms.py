"""What our reader and llama.cpp's make of the same calls, in the form of each chat template.

    python -m benchmarks.call_forms FOLDER [--show NAME]

``FOLDER`` holds the templates, ``models/templates`` of llama.cpp's source tree. 50 calls with hostile arguments are
written as the model would write them. Ours reads them in pieces; ``call_forms.cpp``, linked with the library that
llama-server is made of (`benchmarks.llama_cpp_tools`), reads them with ``common_chat_parse``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine.decoding.chat_template import ChatTemplate
from app.engine.decoding.tools import as_models_write, found_format, written
from app.protocol.calls import CallReader
from app.protocol.commands import Message
from app.protocol.tools import FORMATS, Tool, ToolCall, ToolFormat, definition
from benchmarks import llama_cpp_tools
from tests.support.hostile_calls import TOOL, calls

COUNT = 50
_PIECE = 7
_CLOSES = {"<think>": "Hm.</think>\n\n", "Here are my reasoning steps:": "Hm.\n[BEGIN FINAL RESPONSE]\n"}
"""What ends the thinking that a prompt has opened."""
Found = list[tuple[str, Any]]


def built() -> Path:
    """The program that parses as llama.cpp does."""
    server = llama_cpp_tools.tools().server
    source, program = llama_cpp_tools.source(), server.with_name("call-forms")
    own = Path(__file__).with_suffix(".cpp")
    if not program.exists() or program.stat().st_mtime < own.stat().st_mtime:
        folders = [f"-I{source / one}" for one in ("common", "include", "vendor", "ggml/include")]
        libraries = [f"-L{server.parent}", "-lllama-common", "-lllama", "-lggml", "-lggml-base", "-Wl,-rpath,$ORIGIN"]
        subprocess.run(["c++", "-std=c++17", *folders, str(own), "-o", str(program), *libraries], check=True)
    return program


def ours(known: ToolFormat, tool: Tool, texts: Sequence[str]) -> list[Found]:
    """The calls that our reader finds in each text."""
    found = []
    for text in texts:
        reader, seen = CallReader(known, [tool]), list[ToolCall]()
        for at in range(0, len(text), _PIECE):
            seen += reader.read(text[at : at + _PIECE])[1]
        found.append([(one.name, json.loads(one.arguments)) for one in seen])
    return found


def theirs(program: Path, template: Path, tool: Tool, texts: Sequence[str], before: str) -> list[Found | str]:
    """The calls that llama.cpp finds in each text, or its error."""
    asked = [{"tools": [definition(tool)], "text": before + text, "thinking": False} for text in texts]
    lines = "".join(f"{json.dumps(one)}\n" for one in asked)
    done = subprocess.run([program, template], input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    answers += [{"error": "crashed"}] * (len(texts) - len(answers))
    return [answer["error"][:200] if "error" in answer else _read(answer["calls"]) for answer in answers]


def _read(found: list[list[str]]) -> Found | str:
    try:
        return [(name, json.loads(arguments)) for name, arguments in found]
    except ValueError:
        return "no JSON"


def compare(program: Path, path: Path, show: str | None) -> str:
    """A row of the table."""
    template = ChatTemplate(path.read_text(encoding="utf-8"), "<s>", "</s>")
    name, _ = found_format(template)
    if name == "general":
        return f"| {path.stem} | general | – | – |"
    known = FORMATS[name]
    prompt = template.attempt(Message(role="user", content="Well?"), tools=[TOOL]) or ""
    before = next((text for opening, text in _CLOSES.items() if prompt.rstrip().endswith(opening)), "")
    wanted = calls(known, COUNT)
    texts = [as_models_write(known, written(known, [call])) for call in wanted]
    expected = [[(call.name, json.loads(call.arguments))] for call in wanted]
    own, other = ours(known, TOOL, texts), theirs(program, path, TOOL, texts, before)
    if show == path.stem:
        for text, mine, their, right in zip(texts, own, other, expected, strict=True):
            if mine != right or their != right:
                print(
                    json.dumps({"text": text[:500], "ours": str(mine)[:500], "llama.cpp": str(their)[:500]}, indent=1)
                )
    counts = [sum(one == right for one, right in zip(found, expected, strict=True)) for found in (own, other)]
    return f"| {path.stem} | {name} | {counts[0]} | {counts[1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", help="print what is different for this template")
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.glob("*.jinja"))
    program = built()
    print(f"| template | form | ours, of {COUNT} | llama.cpp |\n|---|---|---|---|")
    for path in paths:
        if arguments.show in (None, path.stem):
            print(compare(program, path, arguments.show), flush=True)
    sys.exit(0 if paths else "There are no templates.")


if __name__ == "__main__":
    main()
