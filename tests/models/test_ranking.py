"""Which drafts come first, from real files in a real library."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models import ranking
from app.models.gguf import GgufHeader, read_header
from app.models.library.library import LibraryEntry, in_order, matching
from app.models.measurements import FileKey, StoredTrial, Trial, Trials, trials_file
from app.models.ranking import Judge, RankedDraft, rank_drafts
from tests.support.eagle3_models import make_bare_head, make_random_head, make_random_target
from tests.support.gguf_files import make_model, spm_vocabulary
from tests.support.library_parts import library, small_model, titles
from tests.support.mtp_models import make_head_file, make_table_model


@pytest.fixture
def target(tmp_path: Path) -> LibraryEntry:
    """32 times as wide as `small_model`, in F32."""
    path = make_model(tmp_path / "target.gguf", architecture="qwen3", width=512, heads=8, layers=1, weights="F32")
    return library(tmp_path).entry_at(path)


def rank(tmp_path: Path, target: LibraryEntry, trials: Trials | None = None) -> list[RankedDraft]:
    return rank_drafts(target, library(tmp_path).scan(), trials or trials_file(tmp_path), Judge({}))


def order(ranked: list[RankedDraft]) -> list[str]:
    return titles([draft.entry for draft in ranked])


def measured(target: LibraryEntry, tmp_path: Path, **speed_ups: float) -> Trials:
    trials = trials_file(tmp_path)
    for name, speed_up in speed_ups.items():
        one = Trial(acceptance_rate=0.5, plain_speed=10, drafted_speed=10 * speed_up, tokens=9, measured_at=1)
        draft = FileKey.of(tmp_path / f"models/{name}.gguf")
        trials.add(StoredTrial(FileKey.of(target.path), draft, one))
    return trials


def test_small_ones_of_the_family_come_first_and_what_does_not_fit_last(tmp_path: Path, target: LibraryEntry) -> None:
    models = tmp_path / "models"
    small_model(models / "family.gguf", architecture="qwen3moe")
    small_model(models / "other.gguf")
    small_model(models / "tiny.gguf", architecture="qwen3", vocab_size=400)
    make_model(models / "medium.gguf", architecture="qwen3", width=160, weights="F32", layers=2)
    make_model(models / "large.gguf", architecture="qwen3", width=320, heads=4, weights="F32", layers=1)
    small_model(models / "another-vocabulary.gguf", architecture="qwen3", tokenizer="gpt2")
    (models / "broken.gguf").write_bytes(b"no")
    ranked = rank(tmp_path, target)
    assert order(ranked) == ["family", "tiny", "other", "medium", "large", "another-vocabulary", "broken"]
    by_title = {draft.entry.title: draft for draft in ranked}
    assert by_title["family"].share < 0.1 < by_title["medium"].share < 1 / 3 < by_title["large"].share
    assert [draft.entry.title for draft in ranked if draft.verdict.warning] == ["large"]
    assert [draft.same_family for draft in ranked[:3]] == [True, True, False]
    assert by_title["another-vocabulary"].verdict.reason.startswith("The vocabularies are of different kinds")
    assert by_title["broken"].verdict.reason == "broken.gguf is not a GGUF model file."


def test_what_was_measured_comes_before_guesses_and_losses_behind(tmp_path: Path, target: LibraryEntry) -> None:
    for name in ("guess", "good", "better", "slower"):
        small_model(tmp_path / f"models/{name}.gguf", architecture="qwen3")
    trials = measured(target, tmp_path, good=1.2, better=1.9, slower=0.8)
    ranked = rank(tmp_path, target, trials)
    assert order(ranked) == ["better", "good", "guess", "slower"]
    assert [draft.trial and draft.trial.speed_up for draft in ranked] == [1.9, 1.2, None, 0.8]
    small_model(tmp_path / "models/better.gguf", architecture="qwen3", vocab_size=400)  # no longer what was measured
    assert order(rank(tmp_path, target, trials))[0] == "good"


def test_a_draft_whose_folder_is_missing_does_not_fit_now(tmp_path: Path, target: LibraryEntry) -> None:
    small_model(tmp_path / "models/one.gguf", architecture="lfm2")
    (draft,) = rank(tmp_path, target)
    assert draft.verdict.note == (
        "The draft is a hybrid model: whether it can undo rejected tokens is tested when it is loaded."
    )
    (tmp_path / "models").rename(tmp_path / "away")
    (draft,) = rank(tmp_path, target)
    assert not draft.verdict.fits
    assert draft.verdict.reason == "The draft is in a folder that isn't available right now."


def test_a_file_that_went_meanwhile_is_said(tmp_path: Path, target: LibraryEntry) -> None:
    path = small_model(tmp_path / "models/one.gguf", vocab_size=400)
    (entry,) = library(tmp_path).scan()
    assert rank_drafts(entry, [entry], trials_file(tmp_path), Judge({})) == []  # it is not its own draft
    path.unlink()
    assert "no longer exists" in Judge({}).verdict(target, entry).reason


def test_tokens_are_read_only_where_nothing_else_decides_and_once(
    tmp_path: Path, target: LibraryEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, tokens = tmp_path / "models", spm_vocabulary(512).tokens
    small_model(models / "same.gguf")
    small_model(models / "smaller.gguf", vocab_size=400)
    small_model(models / "kind.gguf", tokenizer="gpt2")
    small_model(models / "size.gguf", vocab_size=700)
    small_model(models / "token.gguf", tokens=[*tokens[:139], "▁▁", *tokens[140:]])
    read: list[str] = []

    def reading(path: Path) -> GgufHeader:
        read.append(path.name)
        return read_header(path)

    monkeypatch.setattr(ranking, "read_header", reading)
    shown = library(tmp_path)
    entries = shown.scan()
    verdicts = {entry.title: Judge(shown.differences).verdict(target, entry) for entry in entries}
    assert {title for title, verdict in verdicts.items() if verdict.fits} == {"same", "smaller"}
    assert verdicts["token"].reason.startswith('The vocabularies differ: token 139 is "')
    assert verdicts["token"].first_difference == 139
    assert sorted(set(read)) == ["smaller.gguf", "target.gguf", "token.gguf"]
    shown.save()
    read.clear()
    again = library(tmp_path)
    assert {entry.title: Judge(again.differences).verdict(target, entry) for entry in again.scan()} == verdicts
    assert read == []


def test_the_mtp_head_of_the_target_comes_first_and_others_are_not_listed(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    target_path = make_table_model(models / "whole.gguf", "glm4moe")
    make_head_file(models / "named-anyhow.gguf", "glm4moe")
    make_head_file(models / "mtp-whole.gguf", "qwen35")
    entries = {entry.title: entry for entry in library(tmp_path).scan()}
    target, head = entries["whole"], entries["named-anyhow"]
    assert head.is_head and not head.usable and "only the MTP head" in head.problem
    assert target.summary is not None and target.summary.head == "inside" and not target.drafts_itself
    assert target.path == target_path
    ranked = rank(tmp_path, target)
    assert order(ranked)[0] == "named-anyhow" and ranked[0].verdict.fits
    assert "mtp-whole" not in order(ranked)


def test_an_eagle3_head_is_ranked_for_its_target_and_for_no_other(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    make_random_target(models / "llama.gguf")
    make_random_target(models / "qwen.gguf", "qwen35")
    make_bare_head(models / "eagle3-other.gguf", target_width=128)
    make_random_head(models / "Speculator.gguf", models / "llama.gguf")
    entries = {entry.title: entry for entry in library(tmp_path).scan()}
    head = entries["Speculator"]
    assert head.is_head and head.head_title == "EAGLE-3 head" and not head.usable
    assert "Open that model, with this file as its draft model." in head.problem
    ranked = rank(tmp_path, entries["llama"])
    assert ranked[0].entry.title == "Speculator" and ranked[0].verdict.fits
    assert "eagle3-other" not in order(ranked)


# ---------------------------------------------------------------- searching and sorting


def test_searching_and_sorting(tmp_path: Path) -> None:
    models = tmp_path / "models"
    small_model(models / "owner/Zebra.gguf", name="The striped one", context_length=64)
    small_model(models / "owner/ant.gguf", weights="Q8_0", context_length=4096)
    small_model(models / "bee.gguf", weights="F32", architecture="qwen2")
    (models / "broken.gguf").write_bytes(b"no")
    entries = library(tmp_path).scan()
    assert titles(matching(entries, "OWNER stri")) == ["Zebra"]
    assert titles(matching(entries, "qwen2")) == ["bee"]
    assert titles(matching(entries, "")) == titles(entries) == ["ant", "bee", "broken", "Zebra"]
    assert titles(in_order(entries, "name")) == ["ant", "bee", "Zebra", "broken"]
    assert titles(in_order(entries, "size")) == ["bee", "Zebra", "ant", "broken"]
    assert titles(in_order(entries, "context")) == ["ant", "bee", "Zebra", "broken"]
    assert titles(in_order(entries, "quantization")) == ["Zebra", "bee", "ant", "broken"]
    assert titles(in_order(entries, "last used")) == ["ant", "bee", "Zebra", "broken"]
