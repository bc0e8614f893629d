"""The tool `calculate`: arithmetic by a walk over the syntax tree, without `eval`.

No timer is needed: an expression has at most `MAX_NODES` operations, and the size of each result
is checked before it is computed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from echelons.delegation.effects import effect
from echelons.errors import ToolRefusal
from echelons.tools.text_lines import raise_refusals

MAX_LENGTH: Final = 500
MAX_NODES: Final = 300
MAX_BITS: Final = 4096
"""Of a whole number: about 1,233 digits."""
MAX_DIGITS: Final = 300
"""To round to, before or after the point."""

Number = int | float


def _round(value: Number, digits: int = 0) -> Number:
    # `round` computes 10 ** digits for a whole number.
    if abs(digits) > MAX_DIGITS:
        raise ValueError(f"round to at most {MAX_DIGITS} digits")
    return round(value, digits) if digits else round(value)


_OPERATORS: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: Final[dict[type[ast.unaryop], Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "max": max,
    "min": min,
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS: Final = {"pi": math.pi, "e": math.e}
_POSSIBLE: Final = (
    "possible are numbers, + - * / // % **, parentheses, pi, e, and "
    f"{', '.join(sorted(_FUNCTIONS))}"
)


class ExpressionInput(BaseModel):
    """What `calculate` takes."""

    expression: str = Field(description="Arithmetic in Python's notation: (2 + 3) * sqrt(16) / 7")


def evaluate_expression(expression: str) -> Number:
    """Return the value of an arithmetic expression.

    >>> evaluate_expression("(2 + 3) * sqrt(16)"), evaluate_expression("2 ** 100")
    (20.0, 1267650600228229401496703205376)
    """
    if len(expression) > MAX_LENGTH:
        why = f"it has {len(expression)} characters, the limit is {MAX_LENGTH}"
        raise _invalid_expression(expression, why)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = f"it is no arithmetic ({type(error).__name__}); {_POSSIBLE}"
        raise _invalid_expression(expression, why) from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise _invalid_expression(expression, f"it has over {MAX_NODES} parts; calculate fewer")
    try:
        value = _evaluate(tree.body, expression)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise _invalid_expression(expression, f"its value is undefined ({error})") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid_expression(expression, "its value is not finite")
    return value


def build_calculate() -> BaseTool:
    """Return a tool that calculates an arithmetic expression.

    >>> build_calculate().invoke({"expression": "0.1 + 0.2"})
    '0.3'
    """

    @effect(reads_only=True)
    @raise_refusals
    def calculate(expression: str) -> str:
        value = evaluate_expression(expression)
        return format(value, ".15g") if isinstance(value, float) else str(value)

    return StructuredTool(
        name="calculate",
        description=f"Calculate an arithmetic expression exactly; {_POSSIBLE}.",
        args_schema=ExpressionInput,
        func=calculate,
        handle_tool_error=True,
    )


def _evaluate(node: ast.expr, expression: str) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return _check_size(value, expression)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_evaluate(operand, expression))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = _evaluate(left, expression), _evaluate(right, expression)
            # A power is checked before it is computed: no other result can be huge.
            if isinstance(op, ast.Pow) and _is_huge_power(first, second):
                raise _refuse_size(expression)
            return _check_size(_OPERATORS[type(op)](first, second), expression)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            values = [_evaluate(argument, expression) for argument in args]
            return _check_size(_FUNCTIONS[name](*values), expression)
    part = ast.unparse(node)[:60]
    raise _invalid_expression(expression, f"{part!r} is no arithmetic; {_POSSIBLE}")


def _is_huge_power(base: Number, exponent: Number) -> bool:
    is_whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    return is_whole and abs(exponent) * int(base).bit_length() > MAX_BITS


def _check_size(value: Number, expression: str) -> Number:
    # A negative number to a fractional power is complex.
    if not isinstance(value, int | float):
        raise _invalid_expression(expression, "its value is no real number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _refuse_size(expression)
    return value


def _refuse_size(expression: str) -> ToolRefusal:
    why = f"a whole number in it has more than {MAX_BITS} bits, the limit; use fractions (1e300)"
    return _invalid_expression(expression, why)


def _invalid_expression(expression: str, why: str) -> ToolRefusal:
    return ToolRefusal(
        "{expression:short} is not calculated: {why}",
        code="invalid_expression",
        expression=expression,
        why=why,
    )
