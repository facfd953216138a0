"""A signal that only repeats another one is a hop for nothing: who wants to know connects to the first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import app.ui

_UI = Path(app.ui.__file__).parent
_SHELL = _UI / "shell"
_QT_SIGNALS = {"clicked", "toggled", "triggered", "pressed", "released", "activated"}
"""Of Qt's own, those that a class of ours could be tempted to repeat."""


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(_UI.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def _signals(module: ast.Module) -> Iterator[str]:
    """Names of the signals that the classes of ``module`` declare."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "Signal":
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _emits(node: ast.expr, signals: set[str]) -> bool:
    """Whether connecting to ``node`` only repeats a signal: a signal, its `emit`, or a lambda that adds nothing."""
    if isinstance(node, ast.Lambda):
        required = len(node.args.args) - len(node.args.defaults)
        given = {argument.arg for argument in node.args.args[:required]}
        call = node.body
        adds = not isinstance(call, ast.Call) or any(getattr(value, "id", None) not in given for value in call.args)
        return isinstance(call, ast.Call) and not adds and _emits(call.func, signals)
    return isinstance(node, ast.Attribute) and (node.attr == "emit" or node.attr in signals | _QT_SIGNALS)


def relays(modules: list[tuple[Path, ast.Module]]) -> list[str]:
    """Each place where a signal is connected to a signal, as ``file:line``."""
    signals = {name for _, module in modules for name in _signals(module)}
    return [
        f"{path.relative_to(_UI)}:{node.lineno}"
        for path, module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "connect"
        and node.args
        and _emits(node.args[0], signals)
    ]


def test_no_signal_repeats_another_one_outside_the_shell() -> None:
    assert relays([(path, module) for path, module in _modules() if not path.is_relative_to(_SHELL)]) == []


def test_a_relay_is_found() -> None:
    source = """
class View:
    chosen = Signal()
    def __init__(self, button):
        button.clicked.connect(self.chosen)
        button.clicked.connect(self.chosen.emit)
        button.clicked.connect(lambda: self.chosen.emit())
        button.clicked.connect(self._on_clicked)
"""
    assert relays([(_UI / "view.py", ast.parse(source))]) == ["view.py:5", "view.py:6", "view.py:7"]
