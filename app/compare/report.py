"""A report as text: for a terminal, as Markdown, as CSV for spreadsheets, and as JSON with everything."""

from __future__ import annotations

import csv as tables
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import msgspec

from app import words
from app.compare import wording
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, ModelFile, Report, Summary, by_drafter
from app.protocol.frames import without_surrogates
from app.protocol.options import DrafterName
from app.protocol.statistics import exported
from app.words import printable

FORMAT, VERSION = "slipstream-compare", 1
"""The name and version of the JSON format."""
ON_TWO = (
    "The answers without a draft were written on a second server, so hardware, version and settings of the two servers "
    "can be part of every difference."
)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_FORMULA = "=+-@＝＋－＠"
"""A spreadsheet treats a cell with such a first character as a formula."""

_WIDTH = 80
_BAR = 40
_NOTES = 5
"""The most of a kind shown on a terminal; files have all of them."""
_HEADS = ("same", "accepted", "per pass", "no draft", "draft", "speed-up", "middle half")
_WIDTHS = (9, 9, 9, 9, 8, 9, 13)
_DRAFTER_HEADS = ("same", "accepted", "per pass", "a token", "a pass", "memory", "speed-up", "quartiles")
_DRAFTER_WIDTHS = (9, 9, 9, 8, 8, 8, 9, 10)
_SPEED_UP_WIDTH, _SPEED_UPS = 11, 6
"""Of the table of speed-ups by kind and drafter: the width of a column, and how many fit."""

# ---------------------------------------------------------------- for a terminal


def readable(report: Report) -> str:
    """Tables, curves and the differences, at most 80 columns wide, without details of the setup."""
    summaries = list(by_drafter(report.comparisons).values())
    several = [_drafters_table(report, summaries), *_speed_up_tables(summaries)]
    blocks = [_head(report), *(several if len(summaries) > 1 else [_summary_table(summaries[0])])]
    blocks += [*map(_curve, report.curves), *(_shortened(*note) for note in _notes(report).items())]
    return "\n\n".join(block for block in blocks if block)


def _head(report: Report) -> str:
    setup = report.setup
    pair = setup.target.name + (f" with the draft {setup.draft.name}" if setup.draft else "")
    settings = f"{setup.threads} threads, {wording.sampling(setup.sampling)}, draft length {setup.draft_length}"
    if setup.servers:
        pair, settings = f"{pair} on {' and '.join(setup.servers)}", wording.sampling(setup.sampling)
    lines = [printable(pair, _WIDTH), settings, *([ON_TWO] if len(setup.servers) > 1 else [])]
    return "\n".join(part for line in lines for part in textwrap.wrap(line, _WIDTH))


def _summary_table(summary: Summary) -> str:
    rows = summary.rows if len(summary.rows) == 1 else [*summary.rows, summary.total]
    lines = [("tok/s", _HEADS), *((row.kind, wording.cells(row)) for row in rows)]
    return "\n".join(_kind(name) + _cells(cells, _WIDTHS) for name, cells in lines)


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _drafters_table(report: Report, summaries: Sequence[Summary]) -> str:
    """A line for each drafter."""
    lines = [f"{'':10}{_cells(_DRAFTER_HEADS, _DRAFTER_WIDTHS)}"]
    rows = [one.total for one in summaries]
    lines += [f"{row.drafter:10}{_cells(wording.drafter_cells(row, report.setup), _DRAFTER_WIDTHS)}" for row in rows]
    plain = f"without a draft: {words.speed(rows[0].plain_speed)}, {words.milliseconds(rows[0].plain_pass_seconds)}"
    return "\n".join([*lines, f"{plain} a pass"])


def _speed_up_tables(summaries: Sequence[Summary]) -> list[str]:
    """Speed-ups by kind of text, drafters side by side."""
    found, kinds = [], dict.fromkeys(row.kind for one in summaries for row in one.rows)
    for first in range(0, len(summaries), _SPEED_UPS):
        shown = summaries[first : first + _SPEED_UPS]
        tables, widths = [{row.kind: row.speed_up for row in one.rows} for one in shown], [_SPEED_UP_WIDTH] * len(shown)
        lines = [f"{'speed-up':14}{_cells([one.total.drafter for one in shown], widths)}"]
        lines += [_kind(kind) + _cells([words.times(one.get(kind)) for one in tables], widths) for kind in kinds]
        found.append("\n".join(lines))
    return found


def _kind(name: str) -> str:
    return printable(name, 12).ljust(14)


def _curve(curve: Curve) -> str:
    """Speeds by draft length, with ``auto`` at its average length."""
    points = [(float(n), str(n), speed) for n, speed in zip(curve.lengths, curve.speeds, strict=True)]
    if curve.auto is not None and curve.auto_length is not None:
        points.append((curve.auto_length, f"auto, {words.number(curve.auto_length, 1)} per pass", curve.auto))
    known = [(name, speed) for _, name, speed in sorted(points) if speed is not None]
    if not known:
        return ""
    scale = _BAR / max(speed for _, speed in known)
    head = "draft length" if curve.drafter == "auto" else f"length, {curve.drafter}"
    lines = [f"{head:20}{'tok/s':>8}"]
    lines += [f"{name:20}{words.number(speed, 1):>8}  {'█' * round(speed * scale)}" for name, speed in known]
    return "\n".join(lines)


def _notes(report: Report) -> dict[str, list[str]]:
    """By heading: where texts differ, which drafters stopped early, and what wasn't answered."""
    by = {one.drafter: f", {one.drafter}" if report.setup.drafters else "" for one in report.comparisons}
    differing = [
        f"{_named(one.prompt)}, seed {one.seed}{by[one.drafter]}, {wording.difference(one.difference, report.setup)}."
        for one in report.comparisons
        if one.difference is not None
    ]
    found = {
        f"Different texts: {len(differing)} of {len(report.comparisons)}": differing,
        "Drafting stopped early": wording.failures(report.comparisons),
        f"Not answered: {len(report.skipped)}": [f"{_named(one.prompt)}: {one.reason}" for one in report.skipped],
    }
    return {heading: notes for heading, notes in found.items() if notes}


def _named(prompt: Prompt) -> str:
    return f"{prompt.kind}, “{prompt.title}”"


def _shortened(heading: str, notes: Sequence[str]) -> str:
    lines = [f"{heading}."]
    for note in notes[:_NOTES]:
        lines += textwrap.wrap(printable(note, 2000), _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if len(notes) > _NOTES:
        lines.append(f"  and {len(notes) - _NOTES} more; use --output FILE to see all of them.")
    return "\n".join(lines)


# ---------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """A complete report: the table by kind, the differences, every prompt, and how to repeat it."""
    blocks = [
        "# Slipstream: decoding with and without a draft",
        _headline(report),
        *_drafter_blocks(report),
        "## By kind of text",
        _kinds_table(report),
        "*Same text*: both answers are identical. *Accepted*: draft tokens that were accepted ÷ those that were "
        "tested. *Tokens per pass*: the mean acceptance length, 1 + accepted ÷ verify passes. *Speed-up*: decode "
        "speed with the draft ÷ without it, the median over the pairs of runs. *Middle half*: half of the "
        "speed-ups lie in this range. Prompt processing is not included in the speeds.",
        *(block for curve in report.curves for block in _curve_blocks(curve)),
        *(
            f"## {name}\n\n" + "\n".join(f"- {_plain(one, 2000)}" for one in found)
            for name, found in _notes(report).items()
        ),
        "## Every prompt",
        _prompts_table(report),
        "## How to repeat it",
        f"```\n{wording.command(report.setup)}\n```",
        _repeat_note(report),
        _table(["", ""], [[name, value] for name, value in wording.facts(report.setup)]),
    ]
    return "\n\n".join(blocks) + "\n"


def _headline(report: Report) -> str:
    setup, totals = report.setup, [one.total for one in by_drafter(report.comparisons).values()]
    pair = _plain(setup.target.name) + (f" with the draft {_plain(setup.draft.name)}" if setup.draft else "")
    sentences = [f"{pair}, {setup.date[:10]}."]
    total = max(totals, key=lambda one: one.speed_up or 0.0)
    if total.speed_up is not None:
        fastest = f"With `{total.drafter}`, the fastest drafter here" if len(totals) > 1 else "With the draft"
        sentences.append(
            f"{fastest}, decoding was **{words.times(total.speed_up)}** as fast as without it (median "
            f"of {total.runs} comparisons)."
        )
    same = sum(one.same for one in totals)
    sentences.append(
        f"{same} of {len(report.comparisons)} answers had the same text with and without the draft, with the same seed."
    )
    if len(setup.servers) > 1:
        sentences.append(ON_TWO)
    if len(report.comparisons) < report.planned:
        sentences.append(f"Only {len(report.comparisons)} of {report.planned} comparisons were run.")
    return " ".join(sentences)


def _drafter_blocks(report: Report) -> list[str]:
    """A table with a line for each drafter, if there are several."""
    totals = [one.total for one in by_drafter(report.comparisons).values()]
    if len(totals) < 2:
        return []
    heads = ["drafter", "same text", "accepted", "tokens per pass", "a draft token", "a pass", "memory", "speed-up"]
    rows = [[row.drafter, *wording.drafter_cells(row, report.setup)] for row in totals]
    plain = totals[0]
    about = (
        "*A draft token*: drafting time ÷ drafted tokens. *A pass*: the mean time of a verify pass. *Memory*: what the "
        "drafter needs in addition to the target, from the memory plan. Without a draft: "
        f"{words.speed(plain.plain_speed)}; a pass {words.milliseconds(plain.plain_pass_seconds)}."
    )
    return ["## By drafter", _table([*heads, "middle half"], rows), about]


def _kinds_table(report: Report) -> str:
    summaries, rows = by_drafter(report.comparisons), []
    heads = ["drafter", "kind", "same text", "accepted", "tokens per pass", "tok/s without draft", "tok/s with draft"]
    heads += ["speed-up", "middle half", "tokens", "accepted by drafter"]
    for row in (row for one in summaries.values() for row in (*one.rows, one.total)):
        drafters = ", ".join(
            f"{one.name} {words.number(one.accepted)} of {words.number(one.tested)}" for one in row.drafters
        )
        tokens = words.number(row.tokens)
        rows.append([row.drafter, row.kind, *wording.cells(row), tokens, drafters or words.UNKNOWN])
    return _table(heads, rows, without_first=len(summaries) == 1)


def _curve_blocks(curve: Curve) -> list[str]:
    rows = [[str(length), words.number(speed, 1)] for length, speed in zip(curve.lengths, curve.speeds, strict=True)]
    rows.append([f"auto (tested {words.number(curve.auto_length, 1)} per pass)", words.number(curve.auto, 1)])
    by = "" if curve.drafter == "auto" else f", `{curve.drafter}`"
    return [f"## Speed by draft length{by}", _table(["draft length", "tok/s"], rows)]


def _prompts_table(report: Report) -> str:
    heads = ["drafter", "kind", "prompt", "seed", "tokens", "same text", "accepted", "tok/s without draft"]
    heads += ["tok/s with draft", "speed-up"]
    rows = [
        [
            c.drafter,
            c.prompt.kind,
            c.prompt.title,
            str(c.seed),
            f"{words.number(c.drafted.figures.completion_tokens)}",
            "yes" if c.same else "no",
            words.share(c.drafted.figures.draft.acceptance_rate),
            words.number(c.plain.figures.decode_tokens_per_second, 1),
            words.number(c.drafted.figures.decode_tokens_per_second, 1),
            words.times(c.speed_up),
        ]
        for c in report.comparisons
    ]
    return _table(heads, rows, without_first=not report.setup.drafters)


def _repeat_note(report: Report) -> str:
    note = "Run this in a folder with the files named below; their hashes show whether they are the same."
    if report.setup.servers:
        note = "URL stands for the address of the server."
    if not report.setup.prompt_set:
        note += f" `{wording.REPORT_AS_JSON}` is this comparison exported as JSON, which contains the prompts."
    return note


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, without_first: bool = False) -> str:
    lines = [heads, ["---"] * len(heads), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells[without_first:])} |" for cells in lines)


def _plain(text: str, limit: int = 400) -> str:
    """One line of text, escaped so that Markdown doesn't format it."""
    return _MARKDOWN.sub(r"\\\1", printable(text, limit))


# ---------------------------------------------------------------- CSV


def csv(report: Report) -> str:
    """One line per comparison, each with its complete setup, so that tables of several runs can be joined."""
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
        "drafter": comparison.drafter,
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
        **exported(draft),
        **{f"accepted_from_{name}": accepted.get(name, 0) for name in get_args(DrafterName)},
        "draft_seconds": drafted.drafting_seconds,
        "verify_seconds": drafted.figures.verify_seconds,
        "plain_verify_seconds": plain.figures.verify_seconds,
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
    """Text that a spreadsheet would take for a formula gets an apostrophe in front of it (OWASP: CSV injection)."""
    if isinstance(value, str) and value.lstrip()[:1] and (value.lstrip()[0] in _FORMULA or value[0] in "\t\r\n"):
        return f"'{value}"
    return value


# ---------------------------------------------------------------- JSON


def json(report: Report) -> str:
    """Everything, with prompts, texts and token ids; `app.compare.prompts.read` accepts it as a set of prompts.

    Before drafters were compared, reports had ``summary`` and ``curve`` alone; these are the first drafter's.
    """
    summaries = list(by_drafter(report.comparisons).values())
    content = {
        "format": FORMAT,
        "version": VERSION,
        "command": wording.command(report.setup),
        **msgspec.to_builtins(msgspec.structs.replace(report, comparisons=[])),
        "curve": msgspec.to_builtins(report.curves[0]) if report.curves else None,
        "summary": msgspec.to_builtins(summaries[0]),
        "summaries": msgspec.to_builtins(summaries),
        "comparisons": [_whole(comparison) for comparison in report.comparisons],
    }
    return msgspec.json.format(msgspec.json.encode(without_surrogates(content)), indent=2).decode() + "\n"


def _whole(comparison: Comparison) -> dict[str, object]:
    content = msgspec.to_builtins(comparison)
    del content["command"]
    for name, run in (("plain", comparison.plain), ("drafted", comparison.drafted)):
        del content[name]["pieces"]
        content[name] = {"text": run.text, "thinking": run.thinking, "token_ids": run.token_ids, **content[name]}
    return {**content, "same": comparison.same, "speed_up": comparison.speed_up}


# ---------------------------------------------------------------- files

WRITERS: dict[str, Callable[[Report], str]] = {".md": markdown, ".csv": csv, ".json": json}
"""The function that writes a file with this suffix."""


def encoded(report: Report, suffix: str) -> bytes:
    """The content of a file of one of `WRITERS`."""
    return WRITERS[suffix](report).encode("utf-8", "replace")
