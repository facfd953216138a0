"""What the window says about the models of the library."""

from __future__ import annotations

import time
from collections.abc import Sequence

from app.models.library.entry import LibraryEntry
from app.models.library.folders import ModelFolder
from app.models.ranking import RankedDraft
from app.models.text import count_text, printable, size_text
from app.models.trials import Trial
from app.ui.models.fit_badge import UNKNOWN_FIT, FitBadge
from app.ui.models.library_list import LibraryRow
from app.ui.models.model_page import DraftRow, ModelDetails
from app.ui.widgets import units

_DAY_SECONDS = 24 * 3600


def row_of(entry: LibraryEntry, fit: FitBadge, now: float) -> LibraryRow:
    """A line of the list. ``now``: seconds since 1970."""
    summary = entry.summary
    quantization = summary.quantization if summary else ""
    context = summary.training_context if summary else 0
    used = entry.last_used or 0.0
    return LibraryRow(
        path=str(entry.path),
        cells=(
            printable(entry.title, 120),
            printable(quantization) or units.UNKNOWN,
            size_text(entry.size),
            f"{context:,}" if context else units.UNKNOWN,
            when(used, now),
        ),
        sort_keys=(entry.title.casefold(), quantization, entry.size, context, used),
        fit=_unusable(entry) or fit,
        tooltip=f"{entry.path}\n{entry.problem}".strip(),
        is_grey=not entry.usable,
        words=" ".join((entry.where, entry.folder.kind.label, quantization, _name(entry))).casefold(),
    )


def details_of(entry: LibraryEntry, fit: FitBadge, freed: int) -> ModelDetails:
    """The page of a model. ``freed``: bytes that deleting it gives back."""
    known = entry.origin is not None or (bool(entry.sha256) and all(entry.sha256))
    return ModelDetails(
        path=str(entry.path),
        title=printable(entry.title, 120),
        facts=tuple(fact for fact in _facts(entry, fit) if fact[1]),
        problem=entry.problem or ("" if entry.available else "The folder it is in is not there at the moment."),
        can_open=entry.usable,
        can_verify=known and entry.available,
        can_delete=not entry.available or not entry.read_only,
        delete_text=_delete_text(entry, freed),
    )


def draft_row(ranked: RankedDraft) -> DraftRow:
    """A draft on the page of its target."""
    entry, verdict = ranked.entry, ranked.verdict
    quantization = entry.summary.quantization if entry.summary else ""
    sentences = (verdict.reason, verdict.warning or "", verdict.note or "")
    parts = (printable(entry.title, 120), printable(quantization), size_text(entry.size))
    return DraftRow(
        path=str(entry.path),
        title=" · ".join(part for part in parts if part),
        fits=verdict.fits,
        reason=" ".join(sentence for sentence in sentences if sentence),
        measured=measured(ranked.trial) if ranked.trial else "",
        is_warning=verdict.warning is not None,
    )


def measured(trial: Trial) -> str:
    """``68 % kept · 1.8× plain · 22 Nov 2026``."""
    day = time.strftime("%d %b %Y", time.localtime(trial.measured_at)).lstrip("0")
    accepted = "nothing drafted" if trial.acceptance_rate is None else units.accepted(trial.acceptance_rate)
    return f"{accepted} · {units.factor(trial.speed_up)} · {day}"


def summary(entries: Sequence[LibraryEntry], free: int | None) -> str:
    """``12 models, 48 GB · 210 GB free in the models folder``."""
    there = [entry for entry in entries if entry.available]
    text = f"{len(there)} model{'' if len(there) == 1 else 's'}, {size_text(sum(entry.size for entry in there))}"
    if away := len(entries) - len(there):
        text += f" · {away} in folders that are not there"
    return text if free is None else f"{text} · {size_text(free)} free in the models folder"


def offer(found: Sequence[ModelFolder]) -> str:
    """``Models of LM Studio and Ollama were found on this computer. Folders… adds them.``"""
    names = list(dict.fromkeys(folder.kind.label for folder in found))
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Models of {listed} were found on this computer. Folders… adds them, read only."


def when(moment: float, now: float) -> str:
    """``today``, ``yesterday``, ``5 days ago``, ``3 Oct 2026``."""
    if not moment:
        return "never"
    days = int((now - time.timezone) // _DAY_SECONDS - (moment - time.timezone) // _DAY_SECONDS)
    if days <= 1:
        return "yesterday" if days == 1 else "today"
    if days < 14:
        return f"{days} days ago"
    return time.strftime("%d %b %Y", time.localtime(moment)).lstrip("0")


def _unusable(entry: LibraryEntry) -> FitBadge | None:
    if not entry.available:
        return FitBadge("folder missing", detail="The folder is not there at the moment. Nothing is forgotten.")
    return FitBadge("cannot be loaded", "bad", entry.problem) if entry.problem else None


def _delete_text(entry: LibraryEntry, freed: int) -> str:
    if not entry.available:
        return "Remove from the list"
    return f"Delete (frees {size_text(freed)})…" if freed else "Delete…"


def _name(entry: LibraryEntry) -> str:
    return f"{entry.summary.name} {entry.summary.architecture}" if entry.summary else ""


def _facts(entry: LibraryEntry, fit: FitBadge) -> list[tuple[str, str]]:
    found = entry.summary
    facts: list[tuple[str, str]] = []
    if found is not None:
        tokenizer = found.tokenizer
        heads = f", {found.heads} heads, {found.kv_heads} of keys and values" if found.heads else ""
        experts = f"{found.experts}, {found.experts_used} used a token" if found.experts else ""
        facts += [
            ("Name", printable(found.name, 120)),
            ("Parameters", f"{count_text(found.parameters)} ({printable(found.architecture)})"),
            ("Quantization", f"{printable(found.quantization)}, {size_text(entry.size)}"),
            ("Context", f"{found.training_context:,} tokens in training" if found.training_context else ""),
            ("Layers", f"{found.layers}{heads}" if found.layers else ""),
            ("Experts", experts),
            ("MTP layers", f"{found.mtp_layers}, which this version cannot use" if found.mtp_layers else ""),
            ("Vocabulary", f"{tokenizer.size:,} tokens ({printable(tokenizer.kind)})" if tokenizer else ""),
            ("Chat template", "its own" if found.template_sha256 else "none (ChatML is used)"),
        ]
    if entry.usable:
        facts.append(("Fits", fit.detail or ("" if fit is UNKNOWN_FIT else fit.text)))
    facts.append(("Licence", printable(entry.licence) or "not given"))
    if entry.origin is not None:
        facts.append(("From", f"{printable(entry.origin.repository, 120)}, commit {entry.origin.commit[:8]}"))
    parts = f" ({len(entry.parts)} parts)" if len(entry.parts) > 1 else ""
    facts.append(("File", f"{printable(str(entry.path), 400)}{parts}"))
    facts.append(("Folder", entry.folder.kind.label))
    return facts
