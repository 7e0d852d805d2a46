# SPDX-License-Identifier: Apache-2.0
"""What is broken: small changes to a syntax tree, each a mistake somebody could make.

Left out: texts (they are for people), type hints, defaults in signatures, and `invariant(...)`, which cannot be made to fail
from outside as long as the rest is right.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Mod: ast.FloorDiv,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in which function of which module, at which statement, and what it says there afterwards."""

    module: str
    function: str
    number: int
    line: int
    statement: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.text}"


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function and method with its qualified name; functions inside functions belong to the outer one."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, Function))


def statements(function: Function) -> list[ast.stmt]:
    """The statements of a function in the order of the text; a docstring is none."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [node for top in body for node in ast.walk(top) if isinstance(node, ast.stmt)]


def changes(function: Function) -> Iterator[tuple[int, int, str, Change]]:
    """Every change: statement, line, what it becomes, and what makes it so."""
    for index, statement in enumerate(statements(function)):
        if _is_invariant(statement):
            continue
        for node, change in _of_statement(statement):
            line = getattr(node, "lineno", statement.lineno)
            yield index, line, f"{change} in `{_short(statement)}`", change.apply


def _is_invariant(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "invariant"


def _short(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0][:90]


@dataclass(frozen=True, slots=True)
class Swap:
    """Another operator, constant, condition or statement in the place of the one that is there."""

    owner: object
    name: str
    index: int | None
    value: object
    text: str

    def __str__(self) -> str:
        return self.text

    def apply(self) -> None:
        if self.index is None:
            setattr(self.owner, self.name, self.value)
        else:
            getattr(self.owner, self.name)[self.index] = self.value


def _of_statement(statement: ast.stmt) -> Iterator[tuple[ast.AST, Swap]]:
    for node in _own_nodes(statement):
        yield from ((node, swap) for swap in _of_node(node))
    match statement:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield statement, Swap(statement, "value", None, ast.Constant(None), "return None")
        case ast.Expr(value=ast.Call() | ast.YieldFrom()):
            yield statement, Swap(statement, "value", None, ast.Constant(None), "left out")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield statement, Swap(statement, "targets", None, [ast.Name("_left_out", ast.Store())], "not assigned")
        case ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            yield statement, Swap(statement, "op", None, _ARITHMETIC[type(operator)](), "other operator")


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements inside it, and without annotations."""
    yield statement
    waiting = [child for name, child in _children(statement) if name != "annotation"]
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, ast.stmt):
            yield node
            waiting[:0] = [child for name, child in _children(node) if name != "annotation"]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _of_node(node: ast.AST) -> Iterator[Swap]:
    match node:
        case ast.Compare(ops=operators):
            for index, operator in enumerate(operators):
                other = _COMPARISONS[type(operator)]
                yield Swap(node, "ops", index, other(), f"{type(operator).__name__} becomes {other.__name__}")
        case ast.BoolOp(op=operator):
            other_operator = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield Swap(node, "op", None, other_operator, "and/or")
        case ast.BinOp(op=operator, left=left) if type(operator) in _ARITHMETIC and not isinstance(left, ast.Tuple):
            changed = _ARITHMETIC[type(operator)]
            yield Swap(node, "op", None, changed(), f"{type(operator).__name__} becomes {changed.__name__}")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield Swap(node, "test", None, _negated(test), "condition negated")
        case ast.comprehension(ifs=conditions):
            for index, condition in enumerate(conditions):
                yield Swap(node, "ifs", index, _negated(condition), "filter negated")
        case ast.match_case(guard=ast.expr() as guard):
            yield Swap(node, "guard", None, _negated(guard), "guard negated")
        case ast.Constant(value=bool() as value):
            yield Swap(node, "value", None, not value, f"{value} becomes {not value}")
        case ast.Constant(value=int() as value):
            yield Swap(node, "value", None, value + 1, f"{value} becomes {value + 1}")
        case ast.Constant(value=None):
            pass
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            other_name = "max" if name == "min" else "min"
            yield Swap(function, "id", None, other_name, f"{name} becomes {other_name}")


def _negated(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    return ast.UnaryOp(ast.Not(), condition)
