"""Texts for `benchmarks.ngram_replay`: prompts and answers as token ids, one JSON object a line.

    python -m benchmarks.ngram_texts edits FILE      edits of code and agents' turns, from this repository's history
    python -m benchmarks.ngram_texts guide FILE      the guide's answers to code with a name or a line changed
    python -m benchmarks.ngram_texts answers FILE [--questions N] [--temperature T]      a real model's answers

Edits are what people wrote: a file before and after a commit, the same with a name replaced everywhere, and an agent's
calls of a tool that replaces text. The answers are the real model's own: to Spec-Bench's questions, and to requests for
quotes from our documentation and for JSON. Each file is written anew.
"""

from __future__ import annotations

import argparse
import difflib
import json
import keyword
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.engine.decoding.prompt import PromptBuilder
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import Sampling
from benchmarks import copying
from benchmarks.inflate import GUIDE
from benchmarks.real_contestants import vocabulary
from benchmarks.real_figures import load_questions, sample
from tests.support.generation import GREEDY, run
from tests.support.real_models import SMOLLM2, found

Text = dict[str, Any]
Tokenize = Callable[[str], list[int]]
ROOT = Path(__file__).resolve().parents[1]
FROM_A_TEXT = ("summarization", "rag")
_EACH, _LINES, _CHANGED, _TURNS = 24, (40, 160), 25, 4
_NEW_NAMES = ("record", "found_item", "handle", "reader", "source_file", "current")
_USER, _ASSISTANT, _END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"
_THINGS = ("cities", "books", "planets", "recipes", "birds", "bridges", "programming languages", "rivers")


# ---------------------------------------------------------------- what people wrote


def edits(commits: int) -> Iterator[Text]:
    """`_EACH` of each kind, if so many of the last ``commits`` have them."""
    rng, counts = random.Random(1), Counter[str]()
    with vocabulary(_smollm2()) as model:
        tokenize: Tokenize = lambda text: list(model.tokenize(text, special=True, bos=False))  # noqa: E731
        for subject, path, before, after in _changes(commits, rng):
            code = f"```python\n{before}```{_ASSISTANT}Here is the file with the change:\n\n```python\n"
            texts = {"code edits": [(f"{_USER}{subject}\n\n{code}", f"{after}```{_END}")]}
            if renamed := _renamed(before, rng):
                texts["a name changed"] = [(f"{_USER}{renamed[0]}\n\n{code}", f"{renamed[1]}```{_END}")]
            texts["agents' turns"] = list(_turns(subject, path, before, after))
            for kind, pairs in texts.items():
                counts[kind] += 1
                for prompt, answer in pairs if counts[kind] <= _EACH else ():
                    yield {"kind": kind, "about": path, "prompt": tokenize(prompt), "answer": tokenize(answer)}
            if len(counts) == 3 and min(counts.values()) >= _EACH:
                return


def _changes(commits: int, rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Subject, path, and a file before and after small changes of it."""
    for line in _git("log", "--no-merges", "--format=%H %s", f"-{commits}").splitlines():
        commit, subject = line.split(" ", 1)
        rows = [row.split("\t") for row in _git("diff", "--numstat", f"{commit}~", commit, "--", "*.py").splitlines()]
        small = [path for added, removed, path in rows if max(_number(added), _number(removed)) <= _CHANGED]
        known = [path for path in small if "=>" not in path]
        if known:
            path = rng.choice(known)
            before, after = _git("show", f"{commit}~:{path}"), _git("show", f"{commit}:{path}")
            if before and _LINES[0] <= after.count("\n") <= _LINES[1]:
                yield subject, path, before, after


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    return found.stdout


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _CHANGED + 1


def _renamed(code: str, rng: random.Random) -> tuple[str, str] | None:
    """What is asked, and ``code`` with one of its frequent names replaced everywhere."""
    counts = Counter(re.findall(r"\b[a-z_]{4,}\b", code)).most_common()
    names = [name for name, count in counts if 4 <= count <= _CHANGED and not keyword.iskeyword(name)][:8]
    if not names:
        return None
    old, new = rng.choice(names), rng.choice(_NEW_NAMES)
    return f"Rename {old} to {new}.", re.sub(rf"\b{old}\b", new, code)


def _turns(subject: str, path: str, before: str, after: str) -> Iterator[tuple[str, str]]:
    """An agent that has read a file and replaces its parts: the conversation so far, and the next call."""
    said = f"{_USER}{subject}{_ASSISTANT}{_call('read_file', path=path)}{_END}\n<|im_start|>tool\n{before}{_ASSISTANT}"
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(2)
    for part in list(parts)[:_TURNS]:
        texts = "".join(old[part[0][1] : part[-1][2]]), "".join(new[part[0][3] : part[-1][4]])
        answer = _call("edit_file", path=path, old_string=texts[0], new_string=texts[1]) + _END
        yield said, answer
        said += f"{answer}\n<|im_start|>tool\nThe file was changed.{_ASSISTANT}"


def _call(name: str, **arguments: str) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


# ---------------------------------------------------------------- what models wrote


def guide(count: int) -> Iterator[Text]:
    """See `benchmarks.copying`."""
    ids: dict[str, list[int]] = {}

    def answer(engine: Engine, prompt: str) -> str:
        found = run(engine, _command(Message(role="user", content=prompt), GREEDY, 400, raw=True))
        ids[prompt] = list(found.token_ids)
        return found.text

    with patch.object(copying, "_answer", answer), vocabulary(Path(GUIDE[0])) as model:
        for change in ("name", "line"):
            for one in copying.copies(count, "name" if change == "name" else "line")[0]:
                prompt = list(model.tokenize(one.prompt, special=True, bos=True))
                yield {"kind": f"copied {change}", "about": one.code, "prompt": prompt, "answer": ids[one.prompt]}


def answers(questions: int, temperature: float, max_tokens: int) -> Iterator[Text]:
    """A real model's, to ``questions`` of each of Spec-Bench's kinds and to our own requests."""
    asked = [(_kind(one.kind), one.text) for one in (sample(load_questions(), questions, 1) if questions else ())]
    asked = [*asked, *(("quotes", text) for text in _quotes()), *(("JSON", text) for text in _json())]
    engine = Engine()
    engine.load(Load(request=1, target=str(_smollm2())), lambda _: None)
    try:
        with vocabulary(_smollm2()) as model:
            prompts = PromptBuilder(model, 8192)
            for kind, text in asked:
                message = Message(role="user", content=text)
                said = run(engine, _command(message, Sampling(temperature=temperature), max_tokens, raw=False))
                prompt = [int(token) for token in prompts.chat([message]).tokens]
                yield {"kind": kind, "about": text, "prompt": prompt, "answer": list(said.token_ids)}
    finally:
        engine.unload()


def _command(message: Message, sampling: Sampling, max_tokens: int, *, raw: bool) -> Generate:
    return Generate(
        request=2,
        messages=[message],
        sampling=sampling,
        seed=1,
        max_tokens=max_tokens,
        draft_length=0,
        drafter="none",
        raw=raw,
    )


def _smollm2() -> Path:
    path = found(SMOLLM2)
    if path is None:
        raise SystemExit("SmolLM2 isn't there; python -m tests.support.real_models fetches it.")
    return path


def _kind(of_question: str) -> str:
    return "about a text" if of_question in FROM_A_TEXT else "code" if of_question == "coding" else "prose"


def _quotes() -> Iterator[str]:
    """Requests to repeat what our documentation says."""
    for path in sorted((ROOT / "docs").glob("*.md"))[:8]:
        paragraphs = [part for part in path.read_text("utf-8").split("\n\n") if 300 <= len(part) <= 900]
        if paragraphs:
            yield f"Copy this text word by word, and correct its typing errors if there are any.\n\n{paragraphs[0]}"
            yield f"Quote the sentence that matters most in this text, and say why it does.\n\n{paragraphs[-1]}"


def _json() -> Iterator[str]:
    for thing in _THINGS:
        yield f"Write a JSON array of eight {thing}. Each is an object with the keys name, place, year and notes."


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the texts; returns their number."""
    parser = argparse.ArgumentParser(description="Texts to replay n-grams on")
    parser.add_argument("what", choices=("edits", "guide", "answers"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--commits", type=int, default=600, help="how many are looked at")
    parser.add_argument("--count", type=int, default=24, help="of the guide's answers of each kind")
    parser.add_argument("--questions", type=int, default=10, help="of each of Spec-Bench's kinds")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=320)
    options = parser.parse_args(arguments)
    texts = {
        "edits": lambda: edits(options.commits),
        "guide": lambda: guide(options.count),
        "answers": lambda: answers(options.questions, options.temperature, options.max_tokens),
    }
    written = 0
    with options.file.open("w", encoding="utf-8") as file:
        for text in texts[options.what]():
            file.write(json.dumps(text) + "\n")
            file.flush()
            written += 1
    print(f"{written} texts")
    return written


if __name__ == "__main__":
    main()
