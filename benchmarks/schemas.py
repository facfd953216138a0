"""``python -m benchmarks.schemas [ANSWERS]``: JSON Schema's own tests of draft 2020-12 and random schemas. How many are
forced, and how many of so many answers (5,000), drawn at random from the grammars, are valid.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

from app.helper.grammars import answer, check_answer
from app.helper.messages import CheckAnswer, CheckGrammar, GrammarChecked
from tests.helper.test_schema_suite import SUITE
from tests.support.grammars import drawn
from tests.support.schemas import random_schema


def run(count: int) -> None:
    """Print the figures."""
    rng, counts = random.Random(1), Counter[str]()
    schemas: list[Any] = [schema for parts in SUITE.values() for _, schema, _ in parts]
    own = [random_schema(number) for number in range(200)]
    exact = []
    for place, schema in enumerate([*schemas, *own]):
        found = answer(CheckGrammar("json_schema", json.dumps(schema)))
        kind = ("exact" if not found.notes else "widened") if isinstance(found, GrammarChecked) else "refused"
        counts[f"{'suite' if place < len(schemas) else 'random'}, {kind}"] += 1
        if isinstance(found, GrammarChecked) and not found.notes:
            exact.append((json.dumps(schema), found.grammar))
    while counts["valid"] + counts["invalid"] + counts["unchecked"] < count:
        source, grammar = rng.choice(exact)
        if (text := drawn(grammar, rng)) is None:
            counts["not over in time"] += 1
            continue
        problem = check_answer(CheckAnswer(source, text)).problem
        counts["unchecked" if problem is None else "invalid" if problem else "valid"] += 1
        if problem:
            print(problem, source, text)
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
