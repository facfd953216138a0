"""Writes results as a section of benchmarks/notes/gpu.md, one for each GPU; a new one replaces that GPU's last one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_report.results import Results, StepResult
from benchmarks.gpu_report.timetable import TOP_K

_TITLE = "# GPUs\n"
_WIDTHS = {
    "": "as usual",
    ", no graph reuse": "without graph reuse",
    ", no CUDA graphs": "without CUDA graphs",
}
_MODELS = {"q8_0": "Q8_0", "q4_k_m": "Q4_K_M"}
_MIB = 2**20

Figures = Mapping[str, Any]
Steps = Mapping[str, StepResult]
Row = Sequence[object]


def write(results: Results, page: Path) -> None:
    """Put the section into ``page``, which is made if it isn't there. Raises `SystemExit` if nothing was measured."""
    device = results.machine.get("device")
    if not device:
        raise SystemExit("These results don't say which GPU they are of: the step 'devices' is missing.")
    name = f"{device}{', tiny sizes' if results.machine.get('small') else ''}"
    begin, end = f"<!-- gpu-report: {name} -->", f"<!-- end of gpu-report: {name} -->"
    section = "\n".join([begin, *_section(name, results), end])
    text = page.read_text(encoding="utf-8") if page.is_file() else _TITLE
    known = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = known.subn(lambda _: section, text)
    page.write_text(new if count else f"{text.rstrip()}\n\n{section}\n", encoding="utf-8")
    print(f"{page}: {name}")


def _section(name: str, results: Results) -> Iterator[str]:
    steps = results.steps
    yield f"## {name}\n"
    yield from _machine(results)
    for heading, explanation, lines in _TABLES:
        if body := list(lines(steps)):
            yield from (f"### {heading}", *([explanation, ""] if explanation else []), *body, "")
    missing = [(step, result) for step, result in steps.items() if result.state != "done"]
    if missing:
        yield "### Not finished"
        yield from _table(["step", "", "the last it said"], [(s, r.state, _last_line(r.error)) for s, r in missing])
        yield ""


def _machine(results: Results) -> Iterator[str]:
    machine = results.machine
    figures = _of(results.steps, "devices")
    dates = sorted(step.date for step in results.steps.values() if step.date)
    days = " to ".join(dict.fromkeys(date[:10] for date in (dates[0], dates[-1]))) if dates else "?"
    small = " --small" * bool(machine.get("small"))
    command = f"scripts/gpu-report run --backend {machine.get('backend')}{small}"
    yield f"Measured on {days} at commit {machine.get('commit')}: `{command}`."
    if small:
        yield "Tiny models and few repetitions, to try out the report itself: **the figures say nothing about speed.**"
    yield ""
    rows = [
        (device["name"], f"{device['description']}, {device['total_bytes'] / _MIB:,.0f} MiB")
        for device in figures.get("devices", [])
    ]
    rows += [("nvidia-smi, " + key.replace("_", " "), value) for key, value in figures.get("nvidia-smi", {}).items()]
    for key in ("driver", "engine", "system", "python"):
        rows.append((key, figures.get(key, "")))
    cores, memory = figures.get("cores", "?"), figures.get("memory", 0) / 2**30
    rows.append(("processor", f"{figures.get('processor', '')}, {cores} cores, {memory:.0f} GiB of memory"))
    yield from _table(["", ""], [row for row in rows if row[1]])
    yield ""


# ---------------------------------------------------------------- tables


def _smoke(steps: Steps) -> Iterator[str]:
    rows: list[Row] = [(f"self-test: {check}", said) for check, said in _of(steps, "selftest").items()]
    texts = _of(steps, "greedy texts")
    for pair in ("processor and GPU", "plain and drafted"):
        if found := texts.get(pair):
            wrong = f"; **{len(found['different'])} differ**" * bool(found["different"])
            rows.append(
                (
                    f"texts, {pair}",
                    f"{found['same']} of {texts['texts']} the same, {found['near-ties']} near-ties{wrong}",
                )
            )
    if large := _of(steps, "a context too large"):
        said = large.get("sentence") or large.get("ended") or large.get("skipped")
        rows.append(("a context too large", f"{large.get('context', 0):,} tokens: {said}"))
        if "answers afterwards" in large:
            rows.append(("… and an answer afterwards", "yes" if large["answers afterwards"] else "**no**"))
    for name, counts in _of(steps, "architectures").items():
        parts = [f"{count} {result}" for result, count in counts.items() if result != "wrong"]
        rows.append((f"answers of {name}", ", ".join(parts) + "".join(f"; **{each}**" for each in counts["wrong"])))
    return _table(["check", "result"], rows)


def _widths(steps: Steps) -> Iterator[str]:
    found = {}
    for model, name in _MODELS.items():
        for variant, label in _WIDTHS.items():
            for kind in ("cold", "in a row", "in a row, graphs reused", "alternating", "alternating, graphs reused"):
                if values := _of(steps, f"widths {model}{variant}").get(kind):
                    what = kind.replace("cold", "first").replace("graphs reused", "reused")
                    found[f"{name} {label}, {what}"] = values
    widths = sorted({int(width) for values in found.values() for width in values})
    rows = [
        (label, *(_number(values.get(str(width)), "{:.2f}") for width in widths)) for label, values in found.items()
    ]
    return _table(["", *widths], rows)


def _mixed(steps: Steps) -> Iterator[str]:
    found: dict[str, dict[str, Any]] = {}
    for model, name in _MODELS.items():
        for variant, label in _WIDTHS.items():
            figures = _of(steps, f"widths {model}{variant}")
            if mixed := figures.get("mixed"):
                found[f"{name} {label}"] = {**mixed, "chosen": figures.get("padded to")}
                found[f"{name} {label}, reused"] = figures.get("mixed, graphs reused", {})
    return _matrix(found, "{:.2f}")


def _figures_of(name: str, form: str) -> Callable[[Steps], Iterator[str]]:
    """A row for each part of a step's figures."""
    return lambda steps: _matrix(_of(steps, name), form)


def _draft_lengths(steps: Steps) -> Iterator[str]:
    found: dict[str, dict[str, Any]] = {}
    for model, name in _MODELS.items():
        for kind, figures in _of(steps, f"draft lengths {model}").items():
            row = {"tok/s": figures["plain_tokens_per_second"]}
            row |= {length: ratio for length, ratio in figures["to_plain"].items() if length not in ("0", "auto")}
            row |= {"Auto": figures["to_plain"]["auto"], "Auto ÷ best": figures["auto_to_best_fixed"]}
            row |= {"accepted": figures["auto_acceptance_rate"] or 0.0, "same text": figures["same_text"]}
            found[f"{name}, {kind}"] = row
    return _matrix(found, "{:.2f}")


def _bare_loops(steps: Steps) -> Iterator[str]:
    found = {name: figures for model, name in _MODELS.items() if (figures := _of(steps, f"bare loop {model}"))}
    return _matrix(found, "{:.2f}")


def _batch_sizes(steps: Steps) -> Iterator[str]:
    rows = [
        (size, f"{found['tokens per second']:,.0f}", f"{found['GPU bytes'] / _MIB:,.0f}")
        for size, found in _of(steps, "batch sizes").items()
    ]
    return _table(["tokens at once", "tokens per second", "MiB on the GPU"], rows)


def _memory(steps: Steps) -> Iterator[str]:
    loads = {name: found for name, found in _of(steps, "memory").items() if name != "before"}
    mib = {name: {part: value / _MIB for part, value in found.items()} for name, found in loads.items()}
    return _matrix(mib, "{:,.0f}")


def _matrix(figures: Mapping[str, Mapping[str, Any]], form: str) -> Iterator[str]:
    """A row for each item, a column for each name in any of them."""
    columns = list(dict.fromkeys(name for row in figures.values() for name in row))
    rows = [(label, *(_number(row.get(name), form) for name in columns)) for label, row in figures.items()]
    return _table(["", *columns], rows)


def _number(value: object, form: str) -> str:
    if isinstance(value, float):
        return form.format(value)
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _table(heading: Sequence[object], rows: Iterable[Row]) -> Iterator[str]:
    """Lines of Markdown; none without rows."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    if cells:
        yield f"| {' | '.join(map(str, heading))} |"
        yield "|" + "---|" * len(heading)
        yield from (f"| {' | '.join(row)} |" for row in cells)


def _of(steps: Steps, name: str) -> Figures:
    """What a step has measured, even if it didn't finish."""
    return steps[name].figures if name in steps else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


_MODEL = "The guide, inflated to the cost of a real model"
_TABLES: tuple[tuple[str, str, Callable[[Steps], Iterator[str]]], ...] = (
    ("Does it work", "", _smoke),
    (
        "A verify pass, by its width",
        f"Milliseconds. {_MODEL}, 256 tokens in the context. *First*: the first pass of that width; *in a row*: the "
        "median of many; *alternating* with passes over one token; *reused*: the share of passes with the graph of the "
        "one before.",
        _widths,
    ),
    (
        "Widths as they come, or padded",
        "Milliseconds a pass, the mean over the same random sequence of widths. *Reused*: the share of passes with the "
        "graph of the one before; *chosen*: what the engine measured to be the quickest.",
        _mixed,
    ),
    (
        "A whole draft, by the order of its passes",
        "Milliseconds. After full acceptance, a draft model has two tokens to process before it drafts. *Chosen*: what "
        "the engine measured to be quicker, at once or one by one.",
        _figures_of("draft steps", "{:.2f}"),
    ),
    (
        "The engine's own time",
        "Milliseconds a round at draft length 5; `python -m benchmarks.overhead` says what the parts are.",
        _figures_of("own time", "{:.3f}"),
    ),
    (
        "Top-k on the GPU",
        "Milliseconds a round; `python -m benchmarks.own_time` says what the parts are.",
        _figures_of(TOP_K, "{:.3f}"),
    ),
    (
        "Draft lengths against each other",
        f"{_MODEL}, with the guide's draft. Decode speed ÷ that without a draft.",
        _draft_lengths,
    ),
    (
        "Without a draft: the engine and a bare loop",
        "Tokens per second. The bare loop is `llama_decode` and the largest logit.",
        _bare_loops,
    ),
    (
        "A hybrid model",
        "Milliseconds of a round whose draft is rejected from its second token on, with llama.cpp's snapshots of the "
        "running state, and with a copy of it before each draft.",
        _figures_of("hybrids", "{:,.3f}"),
    ),
    ("Batch sizes", f"Prompt processing. {_MODEL}, Q8_0.", _batch_sizes),
    (
        "Images",
        "A projector of a real one's size with random weights. Milliseconds to encode an image (the median), the first "
        "time, and on the processor; the mean squared difference of the embeddings ÷ their variance; GPU memory.",
        _figures_of("images", "{:,.3g}"),
    ),
    ("Stop", "Milliseconds until the engine has stopped.", _figures_of("stop", "{:,.1f}")),
    (
        "Memory on the GPU",
        "MiB, by context length and KV type: as planned, as llama.cpp's backend reports it, as the driver's tool does, "
        "and what is still taken after unloading.",
        _memory,
    ),
)
