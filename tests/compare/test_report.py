"""Reports as text: what is in them, and that nothing in them is taken for markup, formulas or options."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.commands.compare import compare
from app.commands.options import add_commands
from app.compare import prompts, report, wording
from app.compare.results import ModelFile, Report
from app.protocol.options import Sampling
from tests.compare.reports import NEAR_TIE, REPORT, SETUP, SEVERAL, with_setup


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def parsed(command: str) -> argparse.Namespace:
    """The command as the command line itself understands it."""
    parser = argparse.ArgumentParser()
    add_commands(parser, [compare])
    words = shlex.split(command)
    assert words[0] == "slipstream"
    return parser.parse_args(words[1:])


def test_markdown_can_be_read_on_its_own() -> None:
    text = report.markdown(REPORT)
    assert "| code | 1 of 2 | 70% | 2.4 | 45.0 | 60.0 | 1.4× | 1.1–1.7 | 6 | model 14 of 20 |" in text
    assert "| prose | 1 of 1 | – | – | – | – | – | – | 1 | – |" in text
    assert "Only 3 of 5 comparisons were run." in text
    assert "- code, “+1 \\<b\\>”, seed 3, at token 2: " in text and "so this is a near-tie." in text
    assert "- prose, “long”: Too long." in text
    assert "| auto (tested 1.5 per pass) | 70.0 |" in text
    for fact in ("a1", "b2", "c3", "1.2.3", "llama.cpp (test)", "TestOS 1", "2 cores", "context 2,048", "3 to 4"):
        assert fact in text
    assert wording.command(SETUP) in text


def test_no_text_becomes_markup() -> None:
    text = report.markdown(REPORT)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) == 5 + 6 + 5 + 2 + len(wording.facts(SETUP))
    for line in tables:
        cells = line.replace("\\\\", "").replace("\\|", "").count("|")
        assert cells in (3, 10, 11), line
    assert "Big \\*model\\*" in text and "<b>" not in text
    assert "Test \\| CPU" in text


def test_csv_has_a_line_for_each_comparison_with_all_it_was_made_with() -> None:
    text = report.csv(REPORT)
    found = rows(text)
    assert [row["kind"] for row in found] == ["code", "code", "prose"]
    assert (found[0]["speed_up"], found[0]["accepted_from_model"], found[0]["same_text"]) == ("2.0", "7", "True")
    assert (found[1]["near_tie"], found[1]["plain_logit"], found[1]["score_gap"]) == ("True", "12.345", "0.0123")
    assert (found[2]["speed_up"], found[2]["near_tie"]) == ("", "")
    for row in found:
        assert (row["setup_target_sha256"], row["setup_draft_sha256"]) == ("a1", "b2")
        assert row["setup_sampling_temperature"] == "0.8" and row["setup_machine_system"] == "TestOS 1"
        assert row["setup_command"] == wording.command(SETUP)
    assert report.csv(with_setup(draft=None)).splitlines()[0] == text.splitlines()[0]
    nothing = report.csv(msgspec.structs.replace(REPORT, comparisons=[]))
    assert "setup_date," in nothing and nothing.count("\n") == 1


def test_no_cell_is_a_formula() -> None:
    found = rows(report.csv(REPORT))
    assert found[0]["prompt"] == '\'=SUM(1) | "x"'
    assert found[1]["prompt"] == "'+1 <b>"
    assert (found[1]["plain_candidate"], found[1]["drafted_candidate"]) == ("'\n|", "' =b")
    for row in found:
        assert not any(value.lstrip().startswith(tuple("=+@-")) for value in row.values())


def test_json_has_everything_and_is_a_set_of_prompts(tmp_path: Path) -> None:
    text = report.json(REPORT)
    found: dict[str, Any] = json.loads(text)
    assert (found["format"], found["version"], found["command"]) == ("slipstream-compare", 1, wording.command(SETUP))
    assert [c["plain"]["text"] for c in found["comparisons"]] == ["abc", "abc", "a"]
    assert [c["drafted"]["text"] for c in found["comparisons"]] == ["abc", "axc", "a"]
    assert found["comparisons"][1]["drafted"]["token_ids"] == [97, 120, 99]
    assert [c["same"] for c in found["comparisons"]] == [True, False, True]
    assert found["comparisons"][1]["difference"]["drafted_logit"] == 12.335
    assert found["summary"]["total"]["runs"] == 3
    assert msgspec.json.decode(text, type=Report).setup == SETUP
    path = tmp_path / "comparison.json"
    path.write_text(text, encoding="utf-8")
    again = prompts.read(path)
    assert [(p.kind, p.messages[0].content) for p in again] == [
        ("code", '=SUM(1) | "x"'),
        ("code", " +1 <b>"),
        ("prose", "half ? pair"),
        ("prose", "long"),
    ]


@pytest.mark.parametrize("write", [report.markdown, report.csv, report.json, report.readable])
def test_every_report_can_be_encoded_but_for_half_pairs(write: Callable[[Report], str]) -> None:
    for found in (REPORT, msgspec.structs.replace(REPORT, comparisons=[], skipped=[], curves=[])):
        assert write(found).encode("utf-8", "replace")


def test_a_report_from_before_drafters_were_compared_still_opens() -> None:
    path = Path(__file__).parents[1] / "data" / "reports" / "version-9e4d28b2.json"
    assert [prompt.kind for prompt in prompts.read(path)] == ["code", "prose"]
    found = msgspec.json.decode(path.read_bytes(), type=Report)
    assert [(one.drafter, one.speed_up is not None) for one in found.comparisons] == [("auto", True)] * 2
    assert found.setup.drafters == [] and report.readable(found).count("draft length auto") == 1


# ---------------------------------------------------------------- several drafters


def test_several_drafters_have_a_line_each_and_a_column_in_every_table() -> None:
    text = report.markdown(SEVERAL)
    assert "| ngram | 2 of 3 | 70% | 2.4 | 0.25 ms | 10.0 ms | – | 1.4× | 1.3–1.4 |" in text
    assert "| model | 2 of 3 | 70% | 2.4 | 0.25 ms | 10.0 ms | 14.2 MB | 1.4× | 1.1–1.7 |" in text
    assert "| model | code | 1 of 2 |" in text and "| ngram | prose | half" in text
    assert text.count("With `") == 1 and "4 of 6 answers had the same text" in text
    assert "## Speed by draft length, `model`" in text and "drafters ngram, model" in text
    assert ", seed 3, model, at token 2" in text
    assert parsed(wording.command(SEVERAL.setup)).drafters == ["ngram", "model"]


def test_the_terminal_has_a_line_for_each_drafter_and_their_speed_ups_by_kind() -> None:
    text = report.readable(SEVERAL)
    assert max(map(len, text.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "model 2 of 3 70% 2.4 0.25 ms 10.0 ms 14.2 MB 1.4× 1.1–1.7" in lines
    assert "speed-up ngram model" in lines and "code 1.4× 1.4×" in lines
    many = [
        msgspec.structs.replace(SEVERAL.comparisons[0], drafter=name)
        for name in ("grammar", "ngram", "model", "mtp", "chain", "none", "auto")
    ]
    text = report.readable(msgspec.structs.replace(SEVERAL, comparisons=many))
    assert max(map(len, text.splitlines())) <= 80 and text.count("speed-up ") == 3


def test_answers_that_a_drafter_did_not_draft_to_the_end_are_named() -> None:
    """Their speed is partly that without a draft."""
    replace = msgspec.structs.replace
    failed = [replace(one, drafted=replace(one.drafted, draft_failure="It *failed*.")) for one in SEVERAL.comparisons]
    found = replace(SEVERAL, comparisons=failed)
    assert "Drafting stopped early.\n  ngram, 3 answers: It *failed*." in report.readable(found)
    assert "## Drafting stopped early\n\n- ngram, 3 answers: It \\*failed\\*." in report.markdown(found)
    assert json.loads(report.json(found))["comparisons"][0]["drafted"]["draft_failure"] == "It *failed*."
    assert "ended before" not in report.markdown(SEVERAL) + report.readable(SEVERAL)


def test_other_programs_find_each_drafter() -> None:
    found = json.loads(report.json(SEVERAL))
    assert [one["drafter"] for one in found["comparisons"]] == ["ngram", "model"] * 3
    assert [one["total"]["drafter"] for one in found["summaries"]] == ["ngram", "model"]
    assert found["summary"] == found["summaries"][0] and found["curve"] == found["curves"][0]
    assert found["summaries"][1]["total"]["draft_token_seconds"] == pytest.approx(0.003 / 12)
    assert [row["drafter"] for row in rows(report.csv(SEVERAL))] == ["ngram", "model"] * 3
    assert rows(report.csv(SEVERAL))[0]["draft_seconds"] == "0.003"


# ---------------------------------------------------------------- the command that repeats it


def test_the_command_says_what_the_setup_says() -> None:
    options = parsed(wording.command(SETUP))
    assert (options.target, options.draft, options.prompts) == (
        Path("big model.gguf"),
        Path("small.gguf"),
        Path("my set.jsonl"),
    )
    assert (options.kinds, options.repeat, options.seed, options.max_tokens) == (["code", "prose"], 2, 3, 256)
    assert {name: getattr(options, name) for name in Sampling.__struct_fields__} == msgspec.structs.asdict(
        SETUP.sampling
    )
    assert (options.threads, options.context, options.accept, options.thinking) == (2, 2048, "coupled", [])


def test_the_command_names_medusa_heads() -> None:
    found = with_setup(medusa=ModelFile(name="", file="heads.safetensors", sha256="d4"), drafters=["medusa"])
    options = parsed(wording.command(found.setup))
    assert (options.medusa, options.drafters) == (Path("heads.safetensors"), ["medusa"])
    assert ("draft", "Medusa heads, heads.safetensors") in wording.facts(found.setup)


def test_the_command_for_other_setups() -> None:
    guide = ModelFile(name="Guide", file="guide-target.gguf", bundled=True)
    bundled = parsed(wording.command(with_setup(target=guide, draft=guide, prompt_set="bundled", kinds=[]).setup))
    assert (bundled.target, bundled.draft, bundled.no_draft, bundled.prompts) == (None, None, False, None)
    alone = parsed(wording.command(with_setup(target=guide, draft=None).setup))
    assert (alone.target, alone.no_draft, alone.drafter) == (None, True, "ngram")
    named = parsed(wording.command(with_setup(target=guide, draft=None, drafter="lookahead").setup))
    assert named.drafter == "lookahead"
    other = parsed(wording.command(with_setup(target=guide).setup))
    assert (other.target, other.draft) == (Path("guide-target.gguf"), Path("small.gguf"))
    machine = msgspec.structs.replace(SETUP.machine, devices=["GPU 1"])
    found = with_setup(
        machine=machine,
        target_gpu_layers=20,
        draft_gpu_layers=3,
        kv_type="q8_0",
        max_tokens=None,
        draft_length=4,
        prompt_set="",
        prompt_set_sha256="",
        thinking="low",
        thinking_budget=0,
    )
    offloaded = parsed(wording.command(found.setup))
    assert (offloaded.gpu_layers, offloaded.draft_gpu_layers, offloaded.kv_type) == (20, 3, "q8_0")
    assert (offloaded.max_tokens, offloaded.draft_length, offloaded.thinking) == (2048, 4, ["low"])
    assert offloaded.thinking_budget == 0
    assert offloaded.prompts == Path("comparison.json") and "exported as JSON" in report.markdown(found)


# ---------------------------------------------------------------- words


def test_what_a_difference_is_said_to_be() -> None:
    clear = msgspec.structs.replace(NEAR_TIE, near_tie=False, score_gap=None)
    rejection = msgspec.structs.replace(SETUP, accept="rejection")
    greedy = msgspec.structs.replace(rejection, sampling=Sampling(temperature=0))
    assert wording.verdict(NEAR_TIE, SETUP).endswith("by up to 0.020 here, so this is a near-tie")
    assert "0.012 apart in log p + noise" in wording.verdict(NEAR_TIE, SETUP)
    assert "rounding doesn't explain it" in wording.verdict(clear, SETUP)
    assert "the accept rule rejection may choose other tokens" in wording.verdict(clear, rejection)
    assert "rounding doesn't explain it" in wording.verdict(clear, greedy), "greedy rejection is word for word"
    assert wording.verdict(msgspec.structs.replace(NEAR_TIE, plain_logit=None), SETUP) == ""
    assert wording.candidates(NEAR_TIE) == 'at token 2: "\\n|" without a draft, " =b" with it'
    ended = msgspec.structs.replace(NEAR_TIE, plain="", drafted="", drafted_id=None)
    told = wording.candidates(ended)
    assert "token 98, which has no text of its own" in told and "no more text" in told
    plain_texts = msgspec.structs.replace(ended, token=None, plain_id=None, drafted="on")
    assert wording.candidates(plain_texts) == 'at character 1: no more text without a draft, "on" with it'


# ---------------------------------------------------------------- the terminal


def test_the_terminal_needs_80_columns() -> None:
    first, different = REPORT.comparisons[:2]
    long_kind = msgspec.structs.replace(first, prompt=msgspec.structs.replace(first.prompt, kind="k" * 40))
    text = report.readable(msgspec.structs.replace(REPORT, comparisons=[*REPORT.comparisons, long_kind]))
    assert max(map(len, text.splitlines())) <= 80
    cells = ["code", "1 of 2", "70%", "2.4", "45.0", "60.0", "1.4×", "1.1–1.7"]
    assert any(re.split(r" {2,}", line.strip()) == cells for line in text.splitlines())
    assert "Different texts: 1 of 4." in text and "Not answered: 1." in text
    bars = [line.split()[0] for line in text.splitlines() if "█" in line]
    assert bars == ["0", "1", "auto,"], "auto stands at its place"
    assert "and 3 more" in report.readable(msgspec.structs.replace(REPORT, comparisons=[different] * 8))
