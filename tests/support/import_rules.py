"""Contracts that import-linter does not have; `pyproject.toml` fills them in, ``lint-imports`` checks them.

`Whitelist` says what each part of the app may import; what is not listed is forbidden. `NoCircles` finds files that
import each other, also by way of others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports_and_report

ROOT = "app"
"""What is in its own file (name and version) everybody may import."""


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def parsed(rules: list[str]) -> dict[str, list[str]]:
    """``"app.chats -> app.system, app.storage"`` as an entry from the first name to the others."""
    parts = (rule.partition("->") for rule in rules)
    return {
        package.strip(): [name.strip() for name in allowed.split(",") if name.strip()] for package, _, allowed in parts
    }


def owner_of(module: str, rules: Mapping[str, object]) -> str | None:
    """The package or file whose rule holds for ``module``: the nearest one."""
    return max((package for package in rules if is_within(module, package)), key=len, default=None)


def allows(name: str, module: str, package: str, rules: Mapping[str, object]) -> bool:
    """Whether ``package``, which may import ``name``, may import ``module``: whatever is inside ``name``.

    Of what it stands in itself only what belongs to no other part: ``app.models.hub`` may have ``app.models`` without
    ``app.models.library``.
    """
    return owner_of(module, rules) == name if is_within(package, name) else is_within(module, name)


def problems(imports: Mapping[str, set[str]], rules: Mapping[str, list[str]]) -> Iterator[str]:
    """What ``imports`` (module to modules it imports) has that the rules do not allow, and what they allow in vain."""
    unused = {(package, name) for package, names in rules.items() for name in names}
    for module, imported in sorted(imports.items()):
        package = owner_of(module, rules)
        if package is None:
            yield f"{module} has no rule"
            continue
        for other in sorted(imported):
            # What is inside without a rule of its own belongs to the same part.
            if other == ROOT or other in sys.stdlib_module_names or owner_of(other, rules) == package:
                continue
            allowed = [name for name in rules[package] if allows(name, other, package, rules)]
            unused -= {(package, name) for name in allowed}
            if not allowed:
                yield f"{module} must not import {other}: {package} may not"
    yield from (
        f"{package} may import {name} and does not: take it out of its rule" for package, name in sorted(unused)
    )


def imports_of(graph: ImportGraph) -> dict[str, set[str]]:
    own = (module for module in graph.modules if is_within(module, ROOT) and module != ROOT)
    return {module: graph.find_modules_directly_imported_by(module) for module in own}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, the first one again at the end; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


class _Contract(Contract):
    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in check.metadata["problems"]:
            output.print_error(problem)


class Whitelist(_Contract):
    """``rules``: see `parsed`; a part may import itself. ``ignore_imports``: exceptions, one import each."""

    rules = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        removed = remove_ignored_imports_and_report(graph, self.ignore_imports, AlertLevel.ERROR)  # type: ignore[arg-type]
        found = list(problems(imports_of(graph), parsed(self.rules)))  # type: ignore[arg-type]
        return ContractCheck(
            kept=not found, metadata={"problems": found}, ignored_import_count=removed.ignored_import_count
        )


class NoCircles(_Contract):
    """Counts imports inside functions and for types, too: one does not understand such files one after the other."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        found = circle(imports_of(graph))
        return ContractCheck(kept=not found, metadata={"problems": [" -> ".join(found)] if found else []})
