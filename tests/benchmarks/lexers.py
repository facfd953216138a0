"""Every language the app highlights, on nested, repeated, random and long code, through the helper process.

    python -m tests.benchmarks.lexers [--size N] [--json]

Says how often a request passed its time or memory (the block then stays plain) and what the others took. Fails only
where an answer is wrong: another number of lines, or parts outside their line.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator

from app.helper import Helper, HelperError
from app.helper.highlighting import languages, lexer
from app.helper.messages import Highlight

OPENING = (
    "[",
    "{",
    "(",
    "<",
    "<a>",
    "[{(<",
    "begin ",
    "if ",
    "/*",
    "<!--",
    "${",
    "#{",
    "`",
    "'",
    '"',
    '"""',
    "r#",
    "\\",
    "{{",
    "{%",
)


def cases(size: int, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Names and texts of about ``size`` characters."""
    for opening in OPENING:
        yield f"nested {opening}", opening * (size // len(opening))
        yield f"lines of {opening}", f"a {opening} b\n" * (size // (len(opening) + 5))
    for name, letters in (
        ("ascii", range(32, 127)),
        ("any", (*range(9, 11), *range(32, 1000), *range(0x4E00, 0x4E40))),
    ):
        yield f"random {name}", "".join(chr(chance.choice(letters)) for _ in range(size))
        yield (
            f"random lines {name}",
            "\n".join("".join(chr(chance.choice(letters)) for _ in range(60)) for _ in range(size // 60)),
        )
    for name, word in (
        ("x", "x"),
        ("spaces", " "),
        ("tabs", "\t"),
        ("digits", "1"),
        ("words", "word "),
        ("a=1,", "a=1,"),
    ):
        yield f"one long line of {name}", word * (size // len(word))
    yield "empty lines", "\n" * size


def wrong(code: str, found: list[list[int]]) -> bool:
    """Whether an answer does not fit its code."""
    lines = code.split("\n")
    if found and len(found) != len(lines):
        return True
    for line, parts in zip(lines, found, strict=False):
        end = 0
        for at in range(0, len(parts), 3):
            if parts[at] < end or parts[at + 1] < 1:
                return True
            end = parts[at] + parts[at + 1]
        if end > len(line.encode("utf-16-le")) // 2:
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=2000, help="characters of each text")
    parser.add_argument("--seconds", type=float, default=2.0, help="the limit of one request")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = sorted({found.aliases[0] for name in languages() if (found := lexer(name)) is not None})
    helper = Helper(seconds=options.seconds)
    took: list[float] = []
    ended: Counter[str] = Counter()
    slow: Counter[str] = Counter()
    faults: list[str] = []
    for language in names:
        for name, code in cases(options.size, random.Random(language)):
            began = time.perf_counter()
            try:
                if wrong(code, helper.highlight(Highlight(language, code)).lines):
                    faults.append(f"{language}, {name}")
            except HelperError as error:
                ended[type(error).__name__] += 1
                slow[language] += 1
            took.append(time.perf_counter() - began)
    helper.stop()
    took.sort()
    figures = {
        "languages": len(names),
        "requests": len(took),
        "ended": dict(ended),
        "stay_plain": dict(slow.most_common()),
        "median_ms": round(took[len(took) // 2] * 1000, 2),
        "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2),
        "longest_ms": round(took[-1] * 1000, 1),
        "wrong": faults,
    }
    print(json.dumps(figures, indent=None if options.json else 1))
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
