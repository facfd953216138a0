"""An exact calculator: it calculates with fractions of whole numbers, and rounds only what isn't one."""

from __future__ import annotations

import ast
import decimal
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from app.system import KnownError

_MAX_CHARACTERS = 2000
_MAX_BITS = 14_000
"""Of a numerator or denominator: about 4,200 digits, fewer than Python writes at once."""
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})
Number = Fraction | Decimal
"""Exact, or rounded to 50 digits."""


def calculate(expression: str) -> str:
    """The value of ``expression``. Raises `KnownError`."""
    text = expression.translate(_SIGNS).strip()
    if len(text) > _MAX_CHARACTERS:
        raise KnownError(f"The expression is longer than {_MAX_CHARACTERS} characters.")
    try:
        with decimal.localcontext(prec=50, Emax=10_000, Emin=-10_000):
            return _written(_value(ast.parse(text, mode="eval").body, text))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise KnownError("That isn't an expression.") from error
    except ArithmeticError as error:
        by_zero = isinstance(error, ZeroDivisionError)
        raise KnownError("Division by zero." if by_zero else "The result is undefined, or too large.") from error
    except (ValueError, TypeError) as error:
        raise KnownError("A function in it isn't defined for these values.") from error


def _value(node: ast.AST, text: str) -> Number:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return _limited(Fraction(number))
        case ast.Constant(value=float()):  # as it is written: 0.1 is a tenth
            literal = Decimal((ast.get_source_segment(text, node) or "").replace("_", ""))
            return _limited(Fraction(+literal))
        case ast.Name(id=name) if name in _CONSTANTS:
            return Decimal(_CONSTANTS[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            values = _value(left, text), _value(right, text)
            return _limited(_OPERATORS[type(op)](*_alike(*values)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _limited(_FUNCTIONS[name](*_alike(*(_value(one, text) for one in arguments))))
    part = ast.get_source_segment(text, node) if isinstance(node, ast.expr) else text
    raise KnownError(f"“{(part or text)[:100]}” can't be calculated. Use numbers, + - * / // % **, {_NAMES}.")


def _alike(*values: Number) -> tuple[Any, ...]:
    return tuple(map(_rounded, values)) if any(isinstance(one, Decimal) for one in values) else values


def _rounded(value: Number | int) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator) if isinstance(value, Fraction) else Decimal(value)


def _limited(value: Number | int) -> Number:
    value = Fraction(value) if isinstance(value, int) else value
    if isinstance(value, Fraction) and max(map(int.bit_length, value.as_integer_ratio())) > _MAX_BITS:
        raise OverflowError
    return value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            if abs(exponent) * max(map(int.bit_length, base.as_integer_ratio())) > _MAX_BITS and abs(base) != 1:
                raise OverflowError
            return base ** int(exponent)
        if exponent == Fraction(1, 2):
            return _sqrt(base)
    return _rounded(base) ** _rounded(exponent)


def _sqrt(number: Number) -> Number:
    if isinstance(number, Fraction) and number.numerator >= 0:
        root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
        if root * root == number:
            return root
    return _rounded(number).sqrt()


def _whole(function: Callable[..., int], most: int = 1 << _MAX_BITS) -> Callable[..., int]:
    """``function`` for whole numbers up to ``most``."""

    def of(*values: Number) -> int:
        if any(value != int(value) or not -most <= value <= most for value in values):
            raise ValueError
        return function(*map(int, values))

    return of


def _by_float(function: Callable[[float], float]) -> Callable[[Number], Decimal]:
    return lambda number: Decimal(repr(round(function(float(number)), 15)))


def _round(number: Number, digits: Number | int = 0) -> Number:
    return round(Fraction(number), _whole(int, 1000)(Fraction(digits)))


def _log(number: Number, base: Number | None = None) -> Decimal:
    found = _rounded(number).ln()
    return found if base is None else found / _rounded(base).ln()


def _written(value: Number) -> str:
    if isinstance(value, Decimal):
        return f"≈ {_short(value)}"
    digits = next((count for count in range(1001) if not 10**count % value.denominator), None)
    if digits is None:
        exact = f"{value} " if len(str(value)) <= 60 else ""
        return f"{exact}≈ {_short(_rounded(value))}"
    whole, rest = divmod(abs(value.numerator) * 10**digits // value.denominator, 10**digits)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{rest:0{digits}}" if digits else f"{sign}{whole}"


def _short(value: Decimal) -> str:
    with decimal.localcontext(prec=16):  # what sin and cos have, too
        rounded = (+value).normalize()
    return f"{rounded:f}" if -8 < rounded.adjusted() < 21 else str(rounded)


_CONSTANTS = {
    "pi": "3.1415926535897932384626433832795028841971693993751",
    "e": "2.7182818284590452353602874713526624977572470937000",
}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Number | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: math.floor(Fraction(left) / Fraction(right)),
    ast.Mod: lambda left, right: Fraction(left) % Fraction(right),
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, Callable[..., Number | int]] = {
    "sqrt": _sqrt,
    "abs": abs,
    "min": min,
    "max": max,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _whole(math.factorial, 2000),
    "gcd": _whole(math.gcd),
    "lcm": _whole(math.lcm),
    "comb": _whole(math.comb, 2000),
    "exp": lambda number: _rounded(number).exp(),
    "ln": _log,
    "log": _log,
    "log10": lambda number: _rounded(number).log10(),
    "log2": lambda number: _log(number, Fraction(2)),
    **{name: _by_float(getattr(math, name)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
}
_NAMES = f"{', '.join(_CONSTANTS)} and the functions {', '.join(_FUNCTIONS)}"
