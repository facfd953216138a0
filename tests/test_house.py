"""The house of `docs/house.md`, as far as a script can see it: how `app.ui` is put together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from app.ui.shell.all_actions import ELSEWHERE, MENUS

UI = Path(__file__).parents[1] / "app" / "ui"
MOST_IMPORTS, LONGEST_CONSTRUCTOR = 22, 40
FILES = {path.relative_to(UI.parents[1]).as_posix(): ast.parse(path.read_text("utf-8")) for path in UI.rglob("*.py")}
TABLE = "app/ui/shell/all_actions.py"
_OF_ACTIONS = {
    "run",
    "qaction",
    "text",
    "description",
    "keys",
    "is_enabled",
    "choices",
    "add",
    "fill",
    "connect_button",
}
"""Methods of `Actions` that get a name."""


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for file, tree in FILES.items():
        yield from ((file, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(one) for one in node.decorator_list)


def is_callable(annotation: ast.expr) -> bool:
    return "Callable[" in ast.unparse(annotation)


def is_function(value: ast.expr, functions: set[str], methods: set[str]) -> bool:
    """Whether what is assigned is a function, a method or a part of one."""
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) == "partial"
    if isinstance(value, ast.Name):
        return value.id in functions
    return isinstance(value, ast.Attribute) and value.attr in methods


def test_no_object_is_filled_with_functions_from_elsewhere() -> None:
    """Who wants something done names an action. One function that is given when an object is made is no bag of them."""
    bags = []
    for file, node in classes():
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and is_callable(one.annotation)]
        is_bag = len(fields) > 1 or any(one.value is not None for one in fields)
        is_table = (file, node.name) == ("app/ui/actions.py", "Action")  # its functions stand in the table
        if is_dataclass(node) and is_bag and not is_table:
            bags.append(f"{file}: {node.name}")
    assert bags == []


def assigned(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.Assign | ast.AnnAssign]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from ((target, node) for target in (node.targets if isinstance(node, ast.Assign) else [node.target]))


def test_no_attribute_of_another_object_is_set_to_a_function() -> None:
    """Who calls something was given it when it was made."""
    data = {ast.unparse(target).rpartition(".")[2] for tree in FILES.values() for target, _ in assigned(tree)}
    every_method = {one.name for _, node in classes() for one in node.body if isinstance(one, ast.FunctionDef)}
    methods = every_method - data
    variable = {  # attributes that are functions
        target.attr
        for tree in FILES.values()
        for target, node in assigned(tree)
        if isinstance(target, ast.Attribute) and isinstance(node, ast.AnnAssign) and is_callable(node.annotation)
    }
    found = []
    for file, tree in FILES.items():
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} - every_method
        for target, node in assigned(tree):
            if not isinstance(target, ast.Attribute) or ast.unparse(target.value) in ("self", "cls"):
                continue
            if target.attr in variable or (node.value is not None and is_function(node.value, functions, methods)):
                found.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def named() -> Iterator[tuple[str, str]]:
    """The actions that are named in code, with the file."""
    for file, tree in FILES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            method = ast.unparse(node.func)
            if method in ("run", "act") or ("actions" in method and method.rpartition(".")[2] in _OF_ACTIONS):
                yield from (
                    (file, one.value)
                    for one in node.args
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def strings() -> set[str]:
    """All that stand in code but for the table."""
    return {
        node.value
        for file, tree in FILES.items()
        if file != TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_the_table_has_every_action_that_is_named_and_none_that_nobody_names() -> None:
    in_menus = {one.name for menu in MENUS.values() for one in menu if one is not None}
    actions = in_menus | {one.name for place in ELSEWHERE.values() for one in place}
    missing = [entry for entry in named() if entry[1] not in actions and entry[1] != ""]
    assert missing == []
    assert actions - in_menus - strings() == set()


def test_a_module_knows_few_others() -> None:
    def own(tree: ast.Module) -> int:
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        return len({node.module for node in imports if node.module and node.module.startswith("app")})

    assert {file: own(tree) for file, tree in FILES.items() if own(tree) > MOST_IMPORTS} == {}


def test_constructors_are_short() -> None:
    lengths = {
        f"{file}: {node.name}": made.end_lineno - made.lineno + 1
        for file, node in classes()
        for made in node.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__" and made.end_lineno is not None
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_CONSTRUCTOR} == {}
