"""A calculator: exact, with fractions of whole numbers; floating-point numbers only where a function needs them."""

from __future__ import annotations

import ast
import contextlib
import decimal
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from app.system import KnownError

_MAX_CHARACTERS = 2000
_MAX_BITS = 14_000
"""The size of a numerator or denominator: about 4,200 digits, fewer than Python's limit for writing a number."""
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})
_EXACT = decimal.Context(prec=5200, traps=[decimal.Inexact])
_SHOWN = decimal.Context(prec=16)
Number = Fraction | float


def calculate(expression: str) -> str:
    """The value of ``expression``. Raises `KnownError`."""
    text = expression.translate(_SIGNS).strip()
    if len(text) > _MAX_CHARACTERS:
        raise KnownError(f"The expression is longer than {_MAX_CHARACTERS} characters.")
    try:
        return _written(_value(ast.parse(text, mode="eval").body, text))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise KnownError("That isn't an expression.") from error
    except ZeroDivisionError as error:
        raise KnownError("Division by zero.") from error
    except ArithmeticError as error:
        raise KnownError("The result is undefined, or too large.") from error
    except (ValueError, TypeError) as error:
        raise KnownError("A function in it isn't defined for these values.") from error


def _value(node: ast.expr, text: str) -> Number:
    source = ast.get_source_segment(text, node) or ""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return _limited(number)
        case ast.Constant(value=float()):  # taken as written: 0.1 is exactly a tenth
            literal = Decimal(source)
            if abs(literal.adjusted()) > _MAX_BITS / math.log2(10):
                raise OverflowError
            return _limited(Fraction(literal))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _limited(_OPERATORS[type(op)](_value(left, text), _value(right, text)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _limited(_FUNCTIONS[name](*(_value(one, text) for one in arguments)))
    names = f"{', '.join(_CONSTANTS)} and the functions {', '.join(_FUNCTIONS)}"
    raise KnownError(f"“{source[:100]}” can't be calculated. Use numbers, + - * / // % **, {names}.")


def _limited(value: Number | complex) -> Number:
    if isinstance(value, complex):
        raise ValueError
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError
        return value
    if max(map(int.bit_length, value.as_integer_ratio())) > _MAX_BITS:
        raise OverflowError
    return Fraction(value)


def _power(base: Number, exponent: Number) -> Number | complex:
    if exponent == 0.5:
        return _sqrt(base)
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(map(int.bit_length, base.as_integer_ratio()))
        if abs(exponent) * bits > _MAX_BITS and abs(base) != 1:
            raise OverflowError
    return base**exponent


def _sqrt(number: Number) -> Number:
    if isinstance(number, Fraction) and number >= 0:
        root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
        if root * root == number:
            return root
    return math.sqrt(number)


def _whole(function: Callable[..., int], most: int = 1 << _MAX_BITS) -> Callable[..., int]:
    """``function`` for whole numbers up to ``most``."""

    def of(*values: Number) -> int:
        if any(value != int(value) or not -most <= value <= most for value in values):
            raise ValueError
        return function(*map(int, values))

    return of


def _log(number: Number, base: Number = math.e) -> float:
    return math.log(int(number) if number == int(number) else number, base)  # an int may be larger than any float


def _rounded(function: Callable[[Number], float]) -> Callable[[Number], float]:
    return lambda number: round(function(number), 15)  # sin(pi) is 0


def _written(value: Number) -> str:
    ratio = [Decimal(part) for part in value.as_integer_ratio()]
    if isinstance(value, Fraction):
        with contextlib.suppress(decimal.Inexact):
            return f"{_EXACT.divide(*ratio):f}"
    exact = f"{value} " if isinstance(value, Fraction) and len(str(value)) <= 60 else ""
    rounded = _SHOWN.divide(*ratio).normalize(_SHOWN)
    return f"{exact}≈ {f'{rounded:f}' if -8 < rounded.adjusted() < 21 else rounded}"


_CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "abs": abs,
    "min": min,
    "max": max,
    "round": lambda number, digits=0: round(Fraction(number), _whole(int, 1000)(digits)),
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _whole(math.factorial, 2000),
    "gcd": _whole(math.gcd),
    "lcm": lambda *numbers: reduce(lambda *pair: _whole(math.lcm)(*map(_limited, pair)), numbers, 1),
    "comb": _whole(math.comb, 2000),
    "exp": math.exp,
    "ln": _log,
    "log": _log,
    "log10": lambda number: _log(number, 10),
    "log2": lambda number: _log(number, 2),
    **{name: _rounded(getattr(math, name)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
}
