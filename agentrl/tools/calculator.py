"""A calculator that evaluates arithmetic and nothing else."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from agentrl.core.errors import ToolError

__all__ = ["Calculator", "evaluate"]

Number = int | float

MOST_CHARS = 500
MOST_DEPTH = 60
MOST_BITS = 4096

_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, tuple[Callable[..., Number], int, int]] = {
    # how many arguments, at least and at most
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "cos": (math.cos, 1, 1),
    "exp": (math.exp, 1, 1),
    "floor": (math.floor, 1, 1),
    "log": (math.log, 1, 2),
    "log10": (math.log10, 1, 1),
    "log2": (math.log2, 1, 1),
    "max": (max, 2, 20),
    "min": (min, 2, 20),
    "round": (round, 1, 1),
    "sin": (math.sin, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "tan": (math.tan, 1, 1),
}
_CONSTANTS: Mapping[str, Number] = {"e": math.e, "pi": math.pi}


class Calculator:
    """Evaluate an arithmetic expression, such as (17 + 4) * 2 / 3 or sqrt(2) ** 5.

    Numbers, + - * / // % **, parentheses, pi, e, and the functions abs, ceil, cos, exp, floor,
    log, log10, log2, max, min, round, sin, sqrt, tan.

    Args:
        expression: What to evaluate.
    """

    read_only = True
    quick = True

    def __call__(self, expression: str) -> str:
        return evaluate(expression)


def evaluate(expression: str) -> str:
    """The value of an arithmetic expression: integers exactly, others to twelve digits.

    Nothing is executed: the expression's syntax tree is walked, and what is no arithmetic is
    refused. Integers are bounded at 4,096 bits, before they are computed.

    Raises:
        ToolError: it is no arithmetic, too long, or has no finite real value.
    """
    if len(expression) > MOST_CHARS:
        raise ToolError(
            f"the expression has {len(expression):,} characters; at most {MOST_CHARS} are evaluated"
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _value(tree.body, MOST_DEPTH)
    except (SyntaxError, RecursionError, MemoryError) as error:
        what = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise ToolError(f"{expression!r} is no arithmetic expression: {what}") from None
    except ZeroDivisionError:
        raise ToolError(f"{expression!r} divides by zero") from None
    except (OverflowError, ValueError) as error:
        raise ToolError(f"{expression!r} has no value: {error}") from None
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ToolError(f"{expression!r} has no finite value")
    return f"{value:.12g}"


def _value(node: ast.expr, depth: int) -> Number:
    if depth == 0:
        raise ToolError(f"the expression is nested too deeply; at most {MOST_DEPTH} levels are")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, depth - 1))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, depth - 1), _value(node.right, depth - 1)
        if isinstance(node.op, ast.Pow):
            _check_power(left, right)
        result = _BINARY[type(node.op)](left, right)
        if isinstance(result, complex):
            raise ValueError(f"{left}**{right} is no real number")
        return _bounded(result)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _called(node.func.id, node.args, depth)
    raise ToolError(_refusal(node))


def _called(name: str, arguments: list[ast.expr], depth: int) -> Number:
    if name not in _FUNCTIONS:
        raise ToolError(f"unknown function '{name}'; there are {', '.join(_FUNCTIONS)}")
    function, least, most = _FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise ToolError(f"{name} takes {expected} arguments, got {len(arguments)}")
    return _bounded(function(*(_value(one, depth - 1) for one in arguments)))


def _check_power(base: Number, exponent: Number) -> None:
    """Refuse what would take long before it is computed."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        bits = base.bit_length() * exponent
        if bits > 2 * MOST_BITS:
            raise ToolError(f"a power of about {bits:,} bits is too large; at most {MOST_BITS:,}")


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ToolError(f"a number of {value.bit_length():,} bits is too large")
    return value


def _refusal(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        return "'^' is not known; write ** for a power"
    if isinstance(node, ast.Name):
        return f"unknown name '{node.id}'; there are {', '.join(_CONSTANTS)}"
    return f"{ast.unparse(node)!r} is no arithmetic"
