"""``slipstream models``: the models on this computer, and getting more; and ``slipstream inspect``."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from app import system, words
from app.client.process import EngineProcess
from app.commands.options import Command, add_gpu_options, check_main_gpu, command, option, saved_settings, whole
from app.commands.output import show_progress, show_result
from app.models.gguf import read_header
from app.models.heads import head_kind
from app.models.hub.repository import MAX_RESULTS, NoAccessError, SearchResult, Sort
from app.models.library.folders import ModelFolder, found_folders
from app.models.library.library import Library, LibraryEntry, SortKey, in_order, matching, open_library
from app.models.machine_memory import MachineMemory, machine_now
from app.models.measurements import Trial, trials_file
from app.models.model_memory import ModelShape
from app.models.planner import LoadPlan, Wishes, alternatives, layers_text, make_plan
from app.models.ranking import Judge, RankedDraft, rank_drafts
from app.protocol.options import MAX_CONTEXT_LENGTH, KvType
from app.system import Canceled, KnownError
from app.words import printable

_SHOWN = 5


def own_library() -> Library:
    """The library with these settings. Raises `KnownError`."""
    values = saved_settings()
    return open_library(values.models_folder, values.extra_folders)


def find_model(of: Library, word: str, entries: Sequence[LibraryEntry] | None = None) -> LibraryEntry:
    """The model that ``word`` means: a file, or the only model with it in its name. Raises `KnownError`.

    ``entries``: the library's, if already known.
    """
    if os.path.isfile(word):  # noqa: PTH113 - Path's raises for names that no file can have
        return of.entry_at(Path(word))
    entries = of.scan() if entries is None else entries
    wanted = word.casefold()
    found = [entry for entry in entries if wanted in (entry.file_title.casefold(), entry.where.casefold())]
    found = found or [entry for entry in entries if wanted == entry.title.casefold()]
    found = found or [entry for entry in entries if wanted in entry.where.casefold()]
    if not found:
        if word.lower().endswith(".gguf"):
            read_header(word)  # raises an error that says why it can't be read
        raise KnownError(f'No model is called "{printable(word)}". "slipstream models list" shows all of them.')
    if len(found) > 1:
        names = ", ".join(printable(entry.where) for entry in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise KnownError(
            f'{len(found)} models have "{printable(word)}" in their names: {names}{more}. Be more specific.'
        )
    return found[0]


def library_files(words: Sequence[str]) -> list[Path]:
    """The files of the models that ``words`` mean. Raises `KnownError`."""
    found = own_library()
    return [find_model(found, word).path for word in words]


def check_usable(entry: LibraryEntry) -> None:
    """Raise `KnownError` for a model that can't be loaded now."""
    if not entry.usable:
        raise KnownError(entry.problem or f"{printable(entry.where)} is in a folder that isn't available right now.")


def described_model(entry: LibraryEntry) -> dict[str, Any]:
    """An entry as data for JSON; unknown values are ``None``."""
    facts = msgspec.to_builtins(entry.summary) if entry.summary else None
    if facts:
        del facts["shape"]
    return {
        "path": str(entry.path),
        "parts": [str(part) for part in entry.parts],
        "title": entry.title,
        "name": entry.where,
        "folder": str(entry.folder.path),
        "folder_kind": entry.folder.kind.value,
        "read_only": entry.read_only,
        "available": entry.available,
        "usable": entry.usable,
        "problem": entry.problem or None,
        "size": entry.size,
        "modified": entry.modified,
        "last_used": entry.last_used,
        "license": entry.license or None,
        "head": head_kind(entry.summary) if entry.summary else None,
        "model": facts,
    }


def inspecting(metavar: str, help: str, files: Callable[[Sequence[str]], list[Path]]) -> Command:
    """Register the command; ``files`` finds the files that its arguments mean."""

    @command(
        "inspect",
        help,
        option("target", metavar=metavar),
        option("draft", nargs="?", metavar="DRAFT", help=f"say whether this file works as a draft for {metavar}"),
    )
    def inspect(options: argparse.Namespace) -> int:
        from app.models import inspect, pairing
        from app.models.gguf import read_header

        words = [word for word in (options.target, options.draft) if word is not None]
        header, *drafts = map(read_header, files(words))
        if not drafts:
            show_result(options, inspect.describe(header), inspect.readable(header))
            return 0
        verdict = pairing.compare(header, drafts[0])
        described = inspect.describe_pair(header, drafts[0], verdict)
        show_result(options, described, inspect.readable_pair(header, drafts[0], verdict))
        return 0 if verdict.fits else 1

    return inspect


_SENTENCES = {
    True: "is intact: the SHA-256 checksum matches.",
    False: "has changed or is damaged: the SHA-256 checksum doesn't match. Download it again.",
    None: "can't be verified: its SHA-256 checksum isn't known.",
}


# ---------------------------------------------------------------- list


@command(
    "list",
    "list the models in all folders",
    option("words", nargs="*", metavar="WORD", help="only list models with all of these words in their names"),
    option("--sort", choices=get_args(SortKey), default="name", help="default: name"),
)
def list_models(options: argparse.Namespace) -> int:
    library = own_library()
    entries = in_order(matching(library.scan(), " ".join(options.words)), options.sort)
    folders = library.folders()
    offered = [folder for folder in found_folders() if folder.path not in [one.path for one in folders]]
    lists = {"folders": _places(folders), "found_folders": _places(offered), "notices": library.notices}
    table = _table(entries) or [_nothing(folders, options.words)]
    described = {"models": [described_model(entry) for entry in entries], **lists}
    show_result(options, described, [*table, *library.notices, *map(_offer, offered)])
    return 0


def _places(folders: Sequence[ModelFolder]) -> list[dict[str, str]]:
    return [{"path": str(folder.path), "kind": folder.kind.value} for folder in folders]


def _nothing(folders: Sequence[ModelFolder], words: Sequence[str]) -> str:
    if words:
        return f"No model has {printable(' '.join(words))} in its name."
    return f"There are no models in {', '.join(printable(str(one.path), 200) for one in folders)}."


def _table(entries: Sequence[LibraryEntry]) -> list[str]:
    usable = [entry for entry in entries if entry.usable]
    heads = [entry for entry in entries if entry.is_head and entry.available]
    others = [entry for entry in entries if not entry.usable and entry not in heads]
    width = max((len(printable(entry.where, 60)) for entry in usable), default=0)
    lines = [_row(entry, width) for entry in usable]
    kinds = (f"  {printable(entry.where, 60)}: {entry.head_title}, {words.size(entry.size)}" for entry in heads)
    reasons = (f"  {printable(entry.where, 60)}: {_reason(entry)}" for entry in others)
    for title, rows in (("These draft for a model (--draft):", [*kinds]), ("These can't be used:", [*reasons])):
        if rows:
            lines += [*([""] if lines else []), title, *rows]
    return lines


def _row(entry: LibraryEntry, width: int) -> str:
    summary = entry.summary
    assert summary is not None  # it is usable
    context = f"{words.number(summary.training_context)}" if summary.training_context else "?"
    used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used)) if entry.last_used else "never used"
    return (
        f"{printable(entry.where, 60):<{width}}  {words.size(entry.size):>8}  {words.compact(summary.parameters):>7}  "
        f"{printable(summary.quantization, 10):<8} {context:>9} tokens  {used:<10}  {entry.folder.kind.label}"
    )


def _reason(entry: LibraryEntry) -> str:
    if not entry.available:
        return f"its folder, {printable(str(entry.folder.path), 200)}, isn't available right now."
    return entry.problem


def _offer(folder: ModelFolder) -> str:
    return (
        f"There are models from another app ({folder.kind.label}) in {printable(str(folder.path), 200)}. You can "
        "add the folder in Settings."
    )


# ---------------------------------------------------------------- verify


@command("verify", "verify the SHA-256 checksums of a model's files", option("model", metavar="MODEL"))
def verify_model(options: argparse.Namespace) -> int:
    """The exit status is 0 only if the files are unchanged."""
    library = own_library()
    entry = find_model(library, options.model)
    same = library.verify(entry, lambda done, total: show_progress(f"verifying {words.share(done / total)}"))
    show_progress("")
    show_result(options, {"path": str(entry.path), "same": same}, f"{printable(entry.where)} {_SENTENCES[same]}")
    return 0 if same else 1


# ---------------------------------------------------------------- remove


@command(
    "remove",
    "delete a model's files",
    option("model", metavar="MODEL"),
    option("--yes", action="store_true", help="don't ask for confirmation"),
)
def remove_model(options: argparse.Namespace) -> int:
    library = own_library()
    entry = find_model(library, options.model)
    library.check_deletable(entry)
    if not options.yes:
        _ask(entry, library.would_free(entry))
    freed = library.delete(entry)
    described = {"deleted": [str(part) for part in entry.parts], "freed": freed}
    show_result(
        options, described, f"{printable(entry.where)} was deleted. {words.size(freed)} of disk space was freed."
    )
    return 0


def _ask(entry: LibraryEntry, freed: int) -> None:
    """Raises `Canceled` unless the user says yes."""
    if not sys.stdin.isatty():
        raise KnownError(
            "Deleting needs confirmation, but there is no terminal to ask on. Use --yes to delete without asking."
        )
    for part in entry.parts:
        print(printable(str(part), 500), file=sys.stderr)
    print(f"Delete {printable(entry.where)} and free {words.size(freed)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Canceled


@command(
    "pair",
    "list the drafts that fit a target, most promising first",
    option("target", metavar="TARGET"),
    option("draft", nargs="?", metavar="DRAFT", help="only consider this draft (default: all models in the library)"),
)
def list_drafts(options: argparse.Namespace) -> int:
    """The exit status is 1 if nothing fits."""
    library = own_library()
    entries = library.scan()
    target = find_model(library, options.target, entries)
    check_usable(target)
    candidates = [find_model(library, options.draft, entries)] if options.draft else entries
    ranked = rank_drafts(target, candidates, trials_file(system.data_dir()), Judge(library.differences))
    library.save()
    drafts = [_described_draft(place, draft) for place, draft in enumerate(ranked, 1)]
    show_result(options, {"target": described_model(target), "drafts": drafts}, _draft_lines(target, ranked))
    return 0 if any(draft.verdict.fits for draft in ranked) else 1


def _described_draft(position: int, draft: RankedDraft) -> dict[str, Any]:
    verdict = draft.verdict
    return {
        "position": position,
        "draft": described_model(draft.entry),
        "fits": verdict.fits,
        "reason": verdict.reason,
        "warning": verdict.warning,
        "note": verdict.note,
        "target_tokens": verdict.target_tokens,
        "draft_tokens": verdict.draft_tokens,
        "first_difference": verdict.first_difference,
        "share": draft.share if draft.share < math.inf else None,
        "same_family": draft.same_family,
        "trial": {**msgspec.to_builtins(draft.trial), "speed_up": draft.trial.speed_up} if draft.trial else None,
    }


def _draft_lines(target: LibraryEntry, ranked: Sequence[RankedDraft]) -> list[str]:
    lines = [f"Drafts for {printable(target.where)} ({words.size(target.size)}):"]
    for position, draft in enumerate(ranked, 1):
        share = f", {words.share(draft.share)} of the target" if draft.share < math.inf else ""
        lines.append(f"{position:>3}. {printable(draft.entry.where)} ({words.size(draft.entry.size)}{share})")
        verdict = draft.verdict
        told = (verdict.reason, _measured(draft.trial), verdict.warning, verdict.note)
        lines += [f"     {line}" for line in told if line]
    return lines if ranked else ["There are no other models in the library."]


def _measured(trial: Trial | None) -> str:
    if trial is None:
        return ""
    accepted = "" if trial.acceptance_rate is None else f", {words.share(trial.acceptance_rate)} accepted"
    return f"Measured on this computer: {words.times(trial.speed_up)} as fast as without the draft{accepted}."


_PARTS = {
    "target_weights": "Target weights",
    "target_kv": "Target KV cache",
    "draft_weights": "Draft weights",
    "draft_kv": "Draft KV cache",
    "head": "Head",
    "projector": "Projector",
    "compute": "Compute buffers",
}


def _add_wishes(parser: argparse.ArgumentParser) -> None:
    wishes = parser.add_argument_group("preferences (default: what fits best)")
    wishes.add_argument("--context", type=whole(1, MAX_CONTEXT_LENGTH), metavar="N", help="context length in tokens")
    wishes.add_argument("--kv-type", choices=get_args(KvType), help="KV cache type")
    wishes.add_argument("--gpu-layers", type=whole(-1), metavar="N", help="layers on the GPU; -1 means all")
    wishes.add_argument("--draft-gpu-layers", type=whole(-1), metavar="N", help="draft layers on the GPU")
    add_gpu_options(wishes)
    wishes.add_argument("--keep-draft", action="store_true", help="fail rather than leave the draft out")


@command(
    "plan",
    "show how much memory a model or a pair needs, and how it would be loaded",
    option("target", metavar="TARGET"),
    option("draft", nargs="?", metavar="DRAFT"),
    _add_wishes,
)
def show_plan(options: argparse.Namespace) -> int:
    """The exit status is 1 if nothing fits."""
    check_main_gpu(options)
    target, draft = _shapes(options)
    with EngineProcess() as engine:
        machine = machine_now(engine.hello().devices)
    wishes = Wishes(
        context_length=options.context,
        kv_type=options.kv_type,
        target_gpu_layers=options.gpu_layers,
        draft_gpu_layers=options.draft_gpu_layers,
        expert_layers_on_cpu=options.expert_layers_on_cpu,
        split_mode=options.split_mode or "layer",
        main_gpu=options.main_gpu or "",
        tensor_split=options.tensor_split or (),
        draft_device=options.draft_device or "",
        keep_draft=options.keep_draft,
    )
    found = make_plan(target, draft, machine, wishes)
    others = [] if found.fits else alternatives(target, draft, machine, wishes)
    described = msgspec.to_builtins({"machine": machine, "plan": found, "alternatives": others})
    show_result(options, described, _plan_lines(found, others, machine))
    return 0 if found.fits else 1


def _shapes(options: argparse.Namespace) -> tuple[ModelShape, ModelShape | None]:
    library = own_library()
    entries = library.scan()
    target = find_model(library, options.target, entries)
    check_usable(target)
    if options.draft is None:
        return _shape(target), None
    draft = find_model(library, options.draft, entries)
    if not draft.is_head:  # a head isn't a model by itself
        check_usable(draft)
    verdict = Judge(library.differences).verdict(target, draft)
    library.save()
    if not verdict.fits:
        raise KnownError(f"This pair can't be loaded because the models don't fit together. {verdict.reason}")
    return _shape(target), _shape(draft)


def _shape(entry: LibraryEntry) -> ModelShape:
    assert entry.summary is not None  # otherwise, it couldn't be loaded
    return entry.summary.shape


def _plan_lines(plan: LoadPlan, others: Sequence[LoadPlan], machine: MachineMemory) -> list[str]:
    lines = [plan.sentence, ""]
    places = [("memory", plan.estimate.system, plan.system_space)]
    if machine.devices:
        names = [*plan.gpu_spaces] if len(plan.gpu_spaces) > 1 else ["GPU"]
        places += zip(names, plan.estimate.gpus, plan.gpu_spaces.values(), strict=False)
    lines.append(f"{'':<17}" + "".join(f"{name:>10}" for name, _, _ in places))
    for field, label in _PARTS.items():
        sizes = [getattr(parts, field) for _, parts, _ in places]
        if any(sizes):
            lines.append(f"{label:<17}" + "".join(f"{words.size(size):>10}" for size in sizes))
    lines.append(f"{'total':<17}" + "".join(f"{words.size(parts.total):>10}" for _, parts, _ in places))
    lines.append(f"{'available':<17}" + "".join(f"{words.size(space):>10}" for _, _, space in places))
    lines += [
        "",
        f"context {words.number(plan.context_length)} tokens, {plan.kv_type} KV cache{_layers(plan, machine)}",
    ]
    return lines + (["", "What would fit:", *(f"  {other.sentence}" for other in others)] if others else [])


def _layers(plan: LoadPlan, machine: MachineMemory) -> str:
    if not machine.devices:
        return ""
    target, draft = map(layers_text, (plan.target_gpu_layers, plan.draft_gpu_layers))
    device = f" on {plan.draft_device}" if plan.draft_device and plan.draft_gpu_layers else ""
    return f", layers on the GPU: {target} of the target" + (
        f", {draft} of the draft{device}" if plan.with_draft else ""
    )


_LIMIT = 30
_COLUMNS = ("repository", "downloads", "likes", "changed", "gated", "license")
_SIDES = "<>><<<"
"""Right-aligned columns."""
_GATED = {"no": "", "automatic": "gated", "manual": "gated, approved manually"}


@command(
    "search",
    "search Hugging Face for models",
    option("words", nargs="+", metavar="WORD", help="words in the repository's name"),
    option("--sort", choices=get_args(Sort), default="trending", help="default: trending"),
    option(
        "--limit",
        type=whole(1, MAX_RESULTS),
        default=_LIMIT,
        metavar="N",
        help=f"maximum number of results (default {_LIMIT})",
    ),
    epilog='Downloads are from the last 30 days. To download a model, use "slipstream models get REPOSITORY".',
)
def search_models(options: argparse.Namespace) -> int:
    from app.models.hub.api import HubConnection, network_settings

    words = " ".join(options.words)
    hub = HubConnection(network_settings(saved_settings())).hub
    results = hub.search(words, options.sort, options.limit)
    table = _search_table(results) if results else f'No repository has "{printable(words)}" in its name.'
    show_result(options, {"repositories": msgspec.to_builtins(results)}, table)
    return 0


def _search_table(results: Sequence[SearchResult]) -> list[str]:
    rows = [_COLUMNS, *map(_result_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, _SIDES, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in cells]


def _result_row(found: SearchResult) -> tuple[str, ...]:
    return (
        printable(found.id, 200),
        words.compact(found.downloads),
        words.compact(found.likes),
        printable(found.modified[:10]),
        _GATED[found.gated],
        printable(found.license),
    )


_TOKEN = (
    "The access token comes from the system's keyring, where the Slipstream window stores it, or from the variable "
    "HF_TOKEN. It is sent to a mirror only if the settings allow that."
)


@command(
    "get",
    "download a model from Hugging Face, with a matching draft if you like",
    option(
        "wanted",
        metavar="REPO[:FILE]",
        help="a repository such as Qwen/Qwen3-8B-GGUF, followed by a quantization or file name if it has several "
        "models; or a recommended model such as qwen3.5-9b. A head in a separate file comes with it",
    ),
    option("--with-draft", action="store_true", help="also download the best draft that fits"),
    option(
        "--with-images",
        action="store_true",
        help="also download the file with which the model sees images (mmproj), if its repository has one",
    ),
    epilog=f"To resume an interrupted download, run the same command again. {_TOKEN}",
)
def get_model(options: argparse.Namespace) -> int:
    from app.commands import fetching  # only now, because it imports the network

    try:
        return fetching.run(options)
    except NoAccessError as error:
        raise KnownError(f"{error} Its page: {error.page}\n{_TOKEN}") from None


_INSPECT = inspecting("MODEL", "describe a model, and say whether two models fit as a pair", library_files)
MODELS = Command(
    "models",
    None,
    (),
    {
        "help": "manage the models on this computer: list, search, get, pair, …",
        "epilog": "MODEL, TARGET and DRAFT: a file, or part of a name that matches exactly one model of the library.",
    },
    (list_models, _INSPECT, list_drafts, show_plan, search_models, get_model, verify_model, remove_model),
)
