"""A report as text to keep: Markdown for people, CSV for tables, JSON with everything."""

from __future__ import annotations

import csv as tables
import io
import re
from collections.abc import Iterable, Sequence

import msgspec

from app.compare import wording
from app.compare.results import Comparison, Curve, ModelFile, Report, summarize
from app.compare.wording import UNKNOWN, number, percent, times
from app.models.text import printable
from app.protocol.frames import without_surrogates

FORMAT, VERSION = "slipstream-compare", 1
"""What the JSON calls itself."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_FORMULA = "=+-@＝＋－＠"
"""What a spreadsheet takes for the beginning of a formula."""

# ---------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """Readable on its own: the table by kind, what differs, every prompt, and how to repeat it."""
    blocks = [
        "# Slipstream: plain against drafted decoding",
        _headline(report),
        "## By kind of text",
        _kinds_table(report),
        "*Same text*: both answers word for word. *Kept*: guesses the target accepted, of those it tested. *Tokens a "
        "pass*: what one pass of the target brought, on average. *Speed-up*: decode speed with the draft ÷ plain, the "
        "median of the pairs of runs; half of them lie in *half between*. Prompt processing is not in these speeds.",
        *_curve_blocks(report.curve),
        *_difference_blocks(report),
        *_skipped_blocks(report),
        "## Every prompt",
        _prompts_table(report.comparisons),
        "## How to repeat it",
        f"```\n{wording.command(report.setup)}\n```",
        _repeat_note(report),
        _table(["", ""], [[name, value] for name, value in wording.facts(report.setup)]),
    ]
    return "\n\n".join(blocks) + "\n"


def _headline(report: Report) -> str:
    setup, total = report.setup, summarize(report.comparisons).total
    pair = _plain(setup.target.name) + (f" with the draft {_plain(setup.draft.name)}" if setup.draft else "")
    sentences = [f"{pair}, {setup.date[:10]}."]
    if total.speed_up is not None:
        sentences.append(f"Drafting was **{times(total.speed_up)}** as fast as plain (median of {total.runs}).")
    sentences.append(f"{total.same} of {total.runs} answers were the same text with the same seed.")
    if len(report.comparisons) < report.planned:
        sentences.append(f"Only {len(report.comparisons)} of {report.planned} comparisons were made.")
    return " ".join(sentences)


def _kinds_table(report: Report) -> str:
    summary = summarize(report.comparisons)
    heads = ["kind", "same text", "kept", "tokens a pass", "plain tok/s", "with draft tok/s", "speed-up"]
    heads += ["half between", "tokens", "guesses kept by"]
    rows = []
    for row in [*summary.rows, summary.total]:
        drafters = ", ".join(f"{one.name} {one.accepted:,} of {one.tested:,}" for one in row.drafters)
        rows.append([row.kind, *wording.cells(row), f"{row.tokens:,}", drafters or UNKNOWN])
    return _table(heads, rows)


def _curve_blocks(curve: Curve | None) -> list[str]:
    if curve is None:
        return []
    rows = [[str(length), number(speed)] for length, speed in zip(curve.lengths, curve.speeds, strict=True)]
    rows.append([f"auto (tested {number(curve.auto_length)} a pass)", number(curve.auto)])
    return ["## Speed by draft length", _table(["draft length", "tok/s"], rows)]


def _difference_blocks(report: Report) -> list[str]:
    lines = []
    for comparison in report.comparisons:
        if (found := comparison.difference) is not None:
            prompt = comparison.prompt
            name = f"{_plain(prompt.kind)}, “{_plain(prompt.title)}”, seed {comparison.seed}"
            lines.append(f"- {name}: {_plain(wording.difference(found, report.setup))}.")
    return ["## Where texts differ", "\n".join(lines)] if lines else []


def _skipped_blocks(report: Report) -> list[str]:
    lines = [f"- {_plain(s.prompt.kind)}, “{_plain(s.prompt.title)}”: {_plain(s.reason)}" for s in report.skipped]
    return ["## Not answered", "\n".join(lines)] if lines else []


def _prompts_table(comparisons: Sequence[Comparison]) -> str:
    heads = ["kind", "prompt", "seed", "tokens", "same text", "kept", "plain tok/s", "with draft tok/s", "speed-up"]
    rows = [
        [
            c.prompt.kind,
            c.prompt.title,
            str(c.seed),
            f"{c.drafted.figures.completion_tokens:,}",
            "yes" if c.same else "no",
            percent(c.drafted.figures.draft.acceptance_rate),
            number(c.plain.figures.decode_tokens_per_second),
            number(c.drafted.figures.decode_tokens_per_second),
            times(c.speed_up),
        ]
        for c in comparisons
    ]
    return _table(heads, rows)


def _repeat_note(report: Report) -> str:
    note = "Run it in a folder that has the files named below; their hashes tell whether they are the same."
    if not report.setup.prompt_set:
        note += f" `{wording.REPORT_AS_JSON}` is this comparison exported as JSON, which holds the prompts."
    return note


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _plain(text: str) -> str:
    """Text that no Markdown viewer takes for markup, on one line."""
    return _MARKDOWN.sub(r"\\\1", printable(text, 400))


# ---------------------------------------------------------------- CSV


def csv(report: Report) -> str:
    """One line a comparison, each with everything it was made with, so that tables of several runs can be joined."""
    setup = msgspec.structs.replace(report.setup, draft=report.setup.draft or ModelFile(name="", file=""))
    made_with = dict(_flat(msgspec.to_builtins(setup), "setup_"))
    made_with["setup_command"] = wording.command(report.setup)
    rows = [{**_figures(comparison), **made_with} for comparison in report.comparisons]
    names = list(rows[0]) if rows else list(made_with)
    output = io.StringIO()
    writer = tables.DictWriter(output, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return output.getvalue()


def _figures(comparison: Comparison) -> dict[str, object]:
    plain, drafted = comparison.plain, comparison.drafted
    draft, found = drafted.figures.draft, comparison.difference
    accepted = {entry.name: entry.accepted for entry in draft.drafters}
    return {
        "kind": comparison.prompt.kind,
        "prompt": comparison.prompt.title,
        "seed": comparison.seed,
        "same_text": comparison.same,
        "speed_up": comparison.speed_up,
        "plain_tokens_per_second": plain.figures.decode_tokens_per_second,
        "drafted_tokens_per_second": drafted.figures.decode_tokens_per_second,
        "plain_tokens": plain.figures.completion_tokens,
        "drafted_tokens": drafted.figures.completion_tokens,
        "plain_seconds": plain.figures.total_seconds,
        "drafted_seconds": drafted.figures.total_seconds,
        "plain_time_to_first_token": plain.figures.time_to_first_token_seconds,
        "drafted_time_to_first_token": drafted.figures.time_to_first_token_seconds,
        "plain_finish_reason": plain.finish_reason,
        "drafted_finish_reason": drafted.finish_reason,
        "prompt_tokens": drafted.figures.prompt_tokens,
        "drafted": draft.drafted,
        "tested": draft.tested,
        "accepted": draft.accepted,
        "acceptance_rate": draft.acceptance_rate,
        "verify_passes": draft.verify_passes,
        "mean_acceptance_length": draft.mean_acceptance_length,
        "accepted_from_model": accepted.get("model", 0),
        "accepted_from_ngram": accepted.get("ngram", 0),
        "difference_token": found.token if found else None,
        "difference_character": found.character if found else None,
        "plain_candidate": found.plain if found else None,
        "drafted_candidate": found.drafted if found else None,
        "plain_logit": found.plain_logit if found else None,
        "drafted_logit": found.drafted_logit if found else None,
        "score_gap": found.score_gap if found else None,
        "rounding": found.rounding if found else None,
        "near_tie": found.near_tie if found else None,
    }


def _flat(value: dict[str, object], before: str = "") -> Iterable[tuple[str, object]]:
    """Entries of nested objects under joined names, lists as one text."""
    for name, entry in value.items():
        if isinstance(entry, dict):
            yield from _flat(entry, f"{before}{name}_")
        else:
            yield before + name, "; ".join(map(str, entry)) if isinstance(entry, list) else entry


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it (OWASP: CSV injection)."""
    if isinstance(value, str) and value.lstrip()[:1] and (value.lstrip()[0] in _FORMULA or value[0] in "\t\r\n"):
        return f"'{value}"
    return value


# ---------------------------------------------------------------- JSON


def json(report: Report) -> str:
    """Everything, with prompts, texts and token ids; `app.compare.prompts.read` takes it as a set of prompts."""
    summary = summarize(report.comparisons)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "command": wording.command(report.setup),
        **msgspec.to_builtins(report),
        "summary": msgspec.to_builtins(summary),
        "comparisons": [_whole(comparison) for comparison in report.comparisons],
    }
    return msgspec.json.format(msgspec.json.encode(without_surrogates(content)), indent=2).decode() + "\n"


def _whole(comparison: Comparison) -> dict[str, object]:
    content = msgspec.to_builtins(comparison)
    for run in (content["plain"], content["drafted"]):
        del run["pieces"]  # the text once more
    return {**content, "same": comparison.same, "speed_up": comparison.speed_up}
