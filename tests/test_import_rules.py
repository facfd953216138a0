"""What the contracts for import-linter (`tests.support.import_rules`) find; ``lint-imports`` holds the app to them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.import_rules import circle, parsed, problems

RULES = ["app.chats -> app.storage, msgspec", "app.storage ->", "app.storage.lock -> filelock"]


def found(**imports: str) -> list[str]:
    """The problems of modules named ``chats__store`` for ``app.chats.store``, each with what it imports."""
    used = {"app.chats.first": {"app.storage.files", "msgspec"}, "app.storage.lock": {"filelock"}}
    named = {f"app.{module.replace('__', '.')}": set(names.split()) for module, names in imports.items()}
    return list(problems(used | named, parsed(RULES)))


def test_what_is_listed_may_be_imported() -> None:
    assert found(chats__store="app app.chats.model app.storage.lock msgspec pathlib", storage__files="") == []


@pytest.mark.parametrize("module", ["app.models.gguf_parser", "PySide6", "app.chatsy", "app.storages"])
def test_what_is_not_listed_must_not_be_imported(module: str) -> None:
    assert found(chats__store=module) == [f"app.chats.store must not import {module}: app.chats may not"]


def test_a_rule_that_nobody_needs_is_found() -> None:
    used = {"app.chats.first": {"msgspec"}, "app.storage.lock": {"filelock"}}
    assert list(problems(used, parsed(RULES))) == [
        "app.chats may import app.storage and does not: take it out of its rule"
    ]


def test_a_circle_is_found() -> None:
    chain = {"app.a": {"app.b", "msgspec"}, "app.b": {"app.c"}, "app.c": {"app.d"}, "app.d": set[str]()}
    assert circle(chain) == []
    closed = chain | {"app.c": {"app.a"}}
    found = circle(closed)
    assert found[0] == found[-1] and set(found) == {"app.a", "app.b", "app.c"}
    assert all(after in closed[before] for before, after in pairwise(found))
