"""What the window says, word for word."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from app import words
from app.compare.results import Comparison, Skipped, summarize
from app.protocol.commands import Generate
from app.protocol.options import AcceptRule, Sampling
from app.ui.compare import wording
from tests.ui.compare.samples import WORDS, comparison, prompt

NO_BREAK = "\u00a0"
OTHER = (*WORDS[:4], " the", *WORDS[5:])
COMMAND = Generate(request=0, messages=[])


def said(one: Comparison, command: Generate = COMMAND) -> str:
    return wording.verdict(one, command).text


def differing(**fields: object) -> Comparison:
    one = comparison(other=OTHER)
    assert one.difference is not None
    scored = {"plain_logit": 17.321, "drafted_logit": 17.318, "score_gap": 0.0031, "rounding": 0.02, "near_tie": True}
    return replace(one, difference=replace(one.difference, **{**scored, **fields}))


def test_the_same_text_in_one_line() -> None:
    assert said(comparison()) == "✓ Same text, 8 tokens, same seed · 1.9× faster · 71% accepted"
    assert wording.verdict(comparison(), COMMAND).mood == "good"


def test_slower_is_said_as_plainly_as_faster() -> None:
    assert wording.faster(0.8) == "0.8×: drafting doesn't pay off on this text"
    assert wording.faster(0.97) == "same speed"
    assert wording.faster(1.04) == "same speed"
    assert wording.faster(1.06) == f"1.1×{NO_BREAK}faster"
    assert wording.faster(None) == "too short to measure"


def test_what_an_engine_does_not_tell_is_left_out() -> None:
    assert said(comparison(speeds=(None, None), kept=None)).endswith("same seed · too short to measure")


def test_a_near_tie_names_both_candidates_and_their_logits() -> None:
    text = said(differing())
    assert text.startswith("Different starting at token 5 · 1.9× faster · 71% accepted")
    assert "Without a draft: “ a” (logit 17.321). With a draft: “ the” (logit 17.318)." in text
    assert "This is a near-tie, decided by rounding: their scores are 0.0031 apart" in text
    assert "rounding shifts logits by up to 0.02 here" in text
    assert wording.verdict(differing(), COMMAND).mood == "plain"


def test_what_is_no_near_tie_is_a_bug_to_report() -> None:
    found = differing(near_tie=False, score_gap=2.1)
    assert "This isn't a near-tie: their scores are 2.1 apart" in said(found)
    assert "Please report it" in said(found)
    assert wording.verdict(found, COMMAND).mood == "warning"


def test_a_token_at_the_edge_of_the_sampler() -> None:
    assert "at the sampler's cutoff" in said(differing(score_gap=None))


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_the_other_rules_promise_no_words(rule: AcceptRule) -> None:
    command = replace(COMMAND, accept=rule, sampling=Sampling(temperature=0.8))
    assert f"with the accept rule “{rule}”, both answers follow the same distribution" in said(
        differing(near_tie=False), command
    )
    assert "That is expected" in said(differing(near_tie=False), command)
    assert wording.verdict(differing(near_tie=False), command).mood == "plain"
    greedy = replace(COMMAND, accept=rule, sampling=Sampling(temperature=0.0))
    assert "Please report it" in said(differing(near_tie=False), greedy)


def test_an_engine_without_tokens() -> None:
    found = differing(token=None, plain_id=None, drafted_id=None, plain_logit=None, drafted_logit=None, near_tie=None)
    text = said(found)
    assert text.startswith("Different starting at character 21")
    assert "doesn't report how close" in text


def test_the_end_of_an_answer_is_a_candidate_too() -> None:
    assert "With a draft: the end of the answer." in said(differing(drafted="", drafted_logit=None))
    assert "With a draft: nothing more." in said(differing(drafted="", drafted_id=None, drafted_logit=None))
    assert "“↵”" in said(differing(plain="\n"))
    assert "“a\\u202eb”" in said(differing(plain="a\u202eb"))


def test_a_whole_set() -> None:
    total = summarize([comparison(), comparison("story", speeds=(40.0, 36.0))]).total
    assert wording.set_verdict([total], []).text == "✓ Same text in all 2 · 1.4× faster (median) · 71% accepted"
    skipped = Skipped(prompt=prompt(), reason="It is too long.")
    total = summarize([comparison(), differing(), differing(near_tie=False)]).total
    verdict = wording.set_verdict([total], [skipped, skipped])
    assert verdict.heading.startswith("Same text in 1 of 3")
    assert verdict.detail == (
        "Differences at a near-tie, which rounding decides: 1 of 2. 2 prompts were skipped: It is too long."
    )
    assert wording.set_verdict([summarize([]).total], [skipped]).text == (
        "Nothing was compared. 1 prompt was skipped: It is too long."
    )
    slow = summarize([comparison(speeds=(40.0, 30.0))]).total
    assert "drafting doesn't pay off on these texts (median)" in wording.set_verdict([slow], []).heading


def test_several_drafters_and_the_fastest() -> None:
    replace = msgspec.structs.replace
    totals = [
        summarize([replace(comparison(speeds=(40.0, drafted)), drafter=drafter)]).total
        for drafter, drafted in (("ngram", 44.0), ("model", 80.0), ("auto", 79.0))
    ]
    assert wording.set_verdict(totals, []).heading.startswith(
        "✓ Same text in all 3 · fastest: Draft model · 2.0×\u00a0faster (median)"
    )
    assert [wording.drafter_title(one.drafter) for one in totals] == ["N-grams", "Draft model", "Automatic"]


def test_time_left_does_not_dance() -> None:
    said = [words.time_left(seconds).replace(NO_BREAK, " ") for seconds in (3, 42, 47, 89, 100, 3000)]
    assert said == [
        "a few seconds left",
        "about 40 s left",
        "about 50 s left",
        "about 2 min left",
        "about 2 min left",
        "about 50 min left",
    ]
