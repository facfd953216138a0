"""What `peer` concludes from answers, without llama.cpp's programs, which take minutes to build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.host.engine import Engine
from app.engine.llama.model import Model
from app.protocol.commands import Load
from app.protocol.options import LoadSettings
from benchmarks.contestants import (
    AUTO,
    FIXED,
    PLAIN,
    SERVER_DEFAULT,
    SERVER_FIXED,
    SERVER_PLAIN,
    SIMPLE,
    Answer,
    Ask,
    Question,
    Settings,
    read_speculative_simple,
    slipstream,
)
from benchmarks.peer import KINDS, Run, measure, questions, summarize, table
from tests.support.gguf_files import CHATML_TEMPLATE, bpe_vocabulary, make_model

NAMES = [SERVER_PLAIN, PLAIN, SERVER_FIXED, FIXED, SIMPLE, SERVER_DEFAULT, AUTO]


def question(kind: str, text: str = "Why?") -> Question:
    return Question(kind, text, f"<{text}>", [1, 2])


def answer(speed: float | None, drafted: int = 0, accepted: int = 0, text: str = "Because.") -> Answer:
    return Answer(text, 10, speed, drafted, accepted)


@pytest.mark.parametrize("tokenizer", ["llama", "gpt2"])
def test_a_prompt_is_the_same_as_text_and_as_tokens(tmp_path: Path, tokenizer: str) -> None:
    vocabulary = bpe_vocabulary() if tokenizer == "gpt2" else None
    target = make_model(tmp_path / "target.gguf", vocabulary=vocabulary, chat_template=CHATML_TEMPLATE)
    asked = questions(target, 512, 2)

    assert [q.kind for q in asked] == [*KINDS, *KINDS]
    assert len({q.text for q in asked}) == len(asked)
    model = Model(target, 0, lambda _: True)
    assert [model.tokenize(q.prompt, special=True, bos=True) for q in asked] == [q.tokens for q in asked]
    model.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Engine, Settings]]:
    target = make_model(tmp_path / "target.gguf", chat_template=CHATML_TEMPLATE)
    draft = make_model(tmp_path / "draft.gguf", chat_template=CHATML_TEMPLATE, noise=0.05)
    engine = Engine()
    load = LoadSettings(threads=1, context_length=256)
    engine.load(Load(request=1, target=str(target), draft=str(draft), settings=load), lambda _: None)
    yield engine, Settings(target, draft, draft_length=3, threads=1, context=256, max_tokens=12)
    engine.unload()


def test_slipstream_answers_a_question(pair: tuple[Engine, Settings]) -> None:
    engine, settings = pair
    plain = slipstream(engine, settings, 0, "none")(question("prose"))
    drafted = slipstream(engine, settings, 3, "model")(question("prose"))

    assert (plain.tokens, plain.drafted) == (12, 0)
    assert drafted.text == plain.text
    assert drafted.drafted >= drafted.accepted > 0


def test_reads_what_speculative_simple_writes() -> None:
    said = "\n\n<|user|>Why?<|assistant|>Because.\n\n\n\n"
    log = (
        "encoded    7 tokens in    0.020 seconds, speed:  350.000 t/s\n"
        "decoded   60 tokens in    1.500 seconds, speed:   40.000 t/s\n\n"
        "n_draft   = 5\nn_predict = 60\nn_drafted = 55\nn_accept  = 48\naccept    = 87.273%\n"
    )
    read = read_speculative_simple("<|user|>Why?<|assistant|>", said, log)

    assert read.text.strip() == "Because."
    assert (read.tokens, read.speed, read.drafted, read.accepted) == (60, 40.0, 55, 48)
    with pytest.raises(SystemExit, match="not understood"):
        read_speculative_simple("<|user|>How?", said, log)


def test_everyone_gets_every_question_and_who_begins_changes() -> None:
    heard: list[str] = []

    def contestant(name: str) -> Ask:
        def ask(_question: Question) -> Answer:
            heard.append(name)
            return answer(10.0, 4, 3)

        return ask

    runs = measure({name: contestant(name) for name in NAMES}, [question("prose"), question("code")])

    assert heard == [*NAMES, *NAMES, *NAMES[1:], NAMES[0]]
    assert [run.contestant for run in runs] == heard[len(NAMES) :]


def test_a_peer_that_does_not_draft_is_no_peer() -> None:
    def ask(_question: Question) -> Answer:
        return answer(10.0)

    with pytest.raises(SystemExit, match=f"{SERVER_FIXED} did not draft"):
        measure(dict.fromkeys(NAMES, ask), [question("prose")])


def test_ratios_are_medians_of_quotients_by_kind() -> None:
    speeds: dict[str, list[float | None]] = {PLAIN: [10.0, 20.0, 30.0, None], AUTO: [20.0, 30.0, 90.0, 5.0]}
    asked = [question("prose", "a"), question("prose", "b"), question("code", "c"), question("code", "d")]
    runs = []
    for name in NAMES:
        for q, speed in zip(asked, speeds.get(name, [10.0, 10.0, 10.0, 10.0]), strict=True):
            text = "Other." if (name, q.text) == (AUTO, "b") else "Because."
            runs.append(Run(name, q, answer(speed, 5 * (name == AUTO), 4 * (name == AUTO), text)))
    result = summarize(runs)

    assert result["ratios"][f"{AUTO} ÷ {PLAIN}"] == {"all": 2.0, "prose": 1.75, "code": 3.0}
    auto = result["contestants"][AUTO]
    assert auto["all"]["acceptance_rate"] == 0.8
    assert auto["prose"]["same_text_as_slipstream_plain"] == 1
    assert result["contestants"][PLAIN]["all"]["acceptance_rate"] is None
    settings = {"target": "t.gguf", "draft": "d.gguf", "draft_length": 5, "threads": 2}
    text = table({**settings, "llama_cpp_python": "0", "backend": "cpu", **result})
    assert f"{AUTO} ÷ {PLAIN}" in text
    assert "80.0%   3 of 4" in text
