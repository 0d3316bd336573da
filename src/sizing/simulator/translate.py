"""Kernels as text that LLVM compiles: the small part of Python that they are written in.

A kernel is a function of int64 and float64 scalars and of packed arrays, with its types in its annotations. It may
assign, loop (``while``, ``for`` over ``range``), branch, call other kernels, and return a value or several. That
needs no inference of types and no runtime, so a fleet's loop is compiled in about a second where a general
compiler of Python takes ten, and what is compiled can be kept as one file of machine code.

Arithmetic is that of Python: ``//`` and ``%`` round down, ``int`` cuts off, ``/`` gives float64, ``sqrt`` is rounded
correctly, and no floating-point operation is fused or reordered. What Python does beyond that is promised by whoever
writes a kernel, and checked by no instruction: whole numbers stay within 64 bits (32 where an array is int32) and below
2**53 where they meet floats, no divisor is zero, ``int`` is given a finite number, a variable is assigned before it is
read, a function that returns something always does, an index is never negative (``a[-1]`` is not the last element) nor
past the end, and no two arrays share memory. All else is refused, with file and line, when the kernel is translated.
"""

import ast
import math
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from sizing.simulator.layout import Array

Function = Callable[..., Any]
Value = tuple[str, str]  # type and operand

_ITEMS = {"int32": "i32", "int64": "i64", "float64": "double"}
_WHOLE = {ast.Add: "add nsw", ast.Sub: "sub nsw", ast.Mult: "mul nsw", ast.BitAnd: "and"}
_REAL = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
SQRT = "declare double @llvm.sqrt.f64(double)\n"
_ORDER = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def type_of(hint: Any) -> str:
    """LLVM's type of an annotation; arrays are passed by their address."""
    if hint is None or hint is type(None):
        return "void"
    if get_origin(hint) is tuple:
        return "{ " + ", ".join(type_of(item) for item in get_args(hint)) + " }"
    if array_of(hint) is not None:
        return "ptr"
    return {int: "i64", float: "double", bool: "i1"}[hint]


def array_of(hint: Any) -> Array | None:
    """The packed array that an annotation stands for."""
    return next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Array)), None)


def parameters(function: Function) -> dict[str, Any]:
    """Annotations of a kernel's parameters, in order."""
    return {name: hint for name, hint in function.__annotations__.items() if name != "return"}


@lru_cache(maxsize=32)
def _definitions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def module_text(entries: Iterable[Function]) -> str:
    """LLVM module of some kernels that are called from outside, and of all that they call.

    Parameters
    ----------
    entries
        Kernels that return nothing.
    """
    outside = list(entries)
    texts: dict[str, str] = {}
    known: dict[str, Function] = {}
    waiting = list(outside)
    while waiting:
        function = waiting.pop()
        if known.setdefault(function.__name__, function) is not function:
            raise NotImplementedError(f"{_where(function)} and {_where(known[function.__name__])} have one name")
        if function.__name__ not in texts:
            body = _Body(function, linkage="" if function in outside else "internal ")
            texts[function.__name__] = body.text()
            waiting += body.callees
    return "\n".join([SQRT, *(texts[name] for name in sorted(texts))])


def _where(function: Function, line: int | None = None) -> str:
    """File, line and name of a kernel."""
    code = function.__code__
    return f"{Path(code.co_filename).name}, line {line or code.co_firstlineno}: {function.__name__}"


class _Body:
    """One kernel on its way to text."""

    def __init__(self, function: Function, linkage: str) -> None:
        self.function, self.linkage = function, linkage
        node = _definitions(function.__code__.co_filename).get(function.__name__)
        if node is None or len(parameters(function)) != len(node.args.args) or "return" not in function.__annotations__:
            self.complain("a kernel is a function of its module, with all its types in annotations")
        try:
            self.result = type_of(function.__annotations__["return"])
            self.arrays = {name: array for name, hint in parameters(function).items() if (array := array_of(hint))}
            self.scalars = {name: type_of(h) for name, h in parameters(function).items() if name not in self.arrays}
        except KeyError as error:
            self.complain(f"no kernel has the type {error}; use int, float, bool, a tuple of them, or a packed array")
        self.node: ast.FunctionDef = node
        self.line = node.lineno
        self.types: dict[str, str] = {}
        self.head: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[tuple[str, str]] = []  # where continue and break go
        self.callees: list[Function] = []

    def text(self) -> str:
        """Definition of the kernel."""
        given = []
        for name in parameters(self.function):
            if name in self.arrays:
                given.append(f"ptr noalias %{name}")
                continue
            given.append(f"{self.scalars[name]} %in.{name}")
            self.keep(name, (self.scalars[name], f"%in.{name}"))
        self.statements(self.node.body)
        self.lines.append("  ret void" if self.result == "void" else "  unreachable")
        signature = f"define {self.linkage}{self.result} @{self.function.__name__}({', '.join(given)}) nounwind {{"
        return "\n".join([signature, "entry:", *self.head, *self.lines, "}", ""])

    def refuse(self, node: ast.AST) -> NoReturn:
        self.line = getattr(node, "lineno", self.line)
        self.complain(f"{ast.unparse(node)!r} is not for a kernel")

    def complain(self, why: str) -> NoReturn:
        raise NotImplementedError(f"{_where(self.function, getattr(self, 'line', None))}: {why}")

    # --- text
    def emit(self, operation: str) -> str:
        """Append an operation; the name of its result."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {operation}")
        return f"%v{self.count}"

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def place(self, label: str) -> None:
        """Begin a block, into which the one before falls."""
        self.lines += [f"  br label %{label}", f"{label}:"]

    def leave(self, operation: str) -> None:
        """End a block; what follows it in the source is never reached."""
        self.lines += [f"  {operation}", f"{self.label()}:"]

    def branch(self, condition: Value, then: str, other: str) -> None:
        self.lines.append(f"  br i1 {self.truth(condition)}, label %{then}, label %{other}")

    # --- variables
    def keep(self, name: str, value: Value) -> None:
        """Assign to a variable; the first assignment says its type."""
        if name not in self.types:
            self.types[name] = value[0]
            self.head.append(f"  %{name}.at = alloca {value[0]}")
        kind = self.types[name]
        self.lines.append(f"  store {kind} {self.cast(value, kind)}, ptr %{name}.at")

    def cast(self, value: Value, kind: str) -> str:
        """A value as another type: whole numbers become floats, never the other way round."""
        have, text = value
        if have == kind:
            return text
        if (have, kind) == ("i64", "double"):
            return self.emit(f"sitofp i64 {text} to double")
        self.complain(f"{have} where {kind} is needed")

    def truth(self, value: Value) -> str:
        return value[1] if value[0] == "i1" else self.emit(f"icmp ne i64 {self.cast(value, 'i64')}, 0")

    def address(self, node: ast.Subscript) -> tuple[str, str]:
        """Item type and address of an array's element."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.arrays:
            self.refuse(node)
        array = self.arrays[node.value.id]
        if array.columns:
            if not isinstance(node.slice, ast.Tuple):
                self.refuse(node)
            row, column = (self.cast(self.value(x), "i64") for x in node.slice.elts)
            begin = self.emit(f"mul nsw i64 {row}, {array.columns}")
            index = self.emit(f"add nsw i64 {begin}, {column}")
        else:
            index = self.cast(self.value(node.slice), "i64")
        item = _ITEMS[array.item]
        return item, self.emit(f"getelementptr inbounds {item}, ptr %{node.value.id}, i64 {index}")

    def load(self, item: str, address: str) -> Value:
        loaded = self.emit(f"load {item}, ptr {address}")
        return ("i64", self.emit(f"sext i32 {loaded} to i64")) if item == "i32" else (item, loaded)

    def store(self, item: str, address: str, value: Value) -> None:
        text = self.cast(value, "i64" if item == "i32" else item)
        if item == "i32":
            text = self.emit(f"trunc i64 {text} to i32")
        self.lines.append(f"  store {item} {text}, ptr {address}")

    # --- expressions
    def value(self, node: ast.expr) -> Value:
        """Compute an expression."""
        found = getattr(self, f"value_{type(node).__name__.lower()}", self.refuse)(node)
        assert isinstance(found, tuple)
        return found

    def value_constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value, node)

    def constant(self, value: Any, node: ast.expr) -> Value:
        if isinstance(value, bool):
            return "i1", str(value).lower()
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return "i64", str(value)
        if isinstance(value, float):
            return "double", "0x" + struct.pack(">d", value).hex()
        self.refuse(node)

    def value_name(self, node: ast.Name) -> Value:
        if node.id in self.types:
            kind = self.types[node.id]
            return kind, self.emit(f"load {kind}, ptr %{node.id}.at")
        return self.constant(self.function.__globals__.get(node.id), node)

    def value_subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
            return self.part(self.value(node.value), int(str(node.slice.value)))
        return self.load(*self.address(node))

    def part(self, value: Value, k: int) -> Value:
        """One of several values that a kernel returned."""
        return value[0].strip("{} ").split(", ")[k], self.emit(f"extractvalue {value[0]} {value[1]}, {k}")

    def value_binop(self, node: ast.BinOp) -> Value:
        return self.combine(node, node.op, self.value(node.left), self.value(node.right))

    def combine(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        whole = left[0] == right[0] == "i64"
        if whole and isinstance(op, ast.FloorDiv | ast.Mod):
            return self.rounded_down(op, left[1], right[1])
        if whole and type(op) in _WHOLE:
            return "i64", self.emit(f"{_WHOLE[type(op)]} i64 {left[1]}, {right[1]}")
        if type(op) in _REAL:
            a, b = self.cast(left, "double"), self.cast(right, "double")
            return "double", self.emit(f"{_REAL[type(op)]} double {a}, {b}")
        self.refuse(node)

    def rounded_down(self, op: ast.operator, a: str, b: str) -> Value:
        """Python's ``//`` and ``%`` out of division that truncates."""
        rest = self.emit(f"srem i64 {a}, {b}")
        uneven = self.emit(f"icmp ne i64 {rest}, 0")
        opposite = self.emit(f"icmp slt i64 {self.emit(f'xor i64 {rest}, {b}')}, 0")
        below = self.emit(f"and i1 {uneven}, {opposite}")
        if isinstance(op, ast.Mod):
            more = self.emit(f"select i1 {below}, i64 {b}, i64 0")
            return "i64", self.emit(f"add nsw i64 {rest}, {more}")
        quotient = self.emit(f"sdiv i64 {a}, {b}")
        less = self.emit(f"zext i1 {below} to i64")
        return "i64", self.emit(f"sub nsw i64 {quotient}, {less}")

    def value_unaryop(self, node: ast.UnaryOp) -> Value:
        kind, text = value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return "i1", self.emit(f"xor i1 {self.truth(value)}, true")
        if isinstance(node.op, ast.USub) and kind == "i64":
            return "i64", str(-int(text)) if text.isdigit() else self.emit(f"sub nsw i64 0, {text}")
        if isinstance(node.op, ast.USub) and kind == "double":
            return "double", self.emit(f"fneg double {text}")
        self.refuse(node)

    def value_compare(self, node: ast.Compare) -> Value:
        if len(node.ops) != 1 or type(node.ops[0]) not in _ORDER:
            self.refuse(node)
        return self.compared(_ORDER[type(node.ops[0])], self.value(node.left), self.value(node.comparators[0]))

    def compared(self, order: str, left: Value, right: Value) -> Value:
        if left[0] == right[0] == "i64":
            signed = order if order in ("eq", "ne") else f"s{order}"
            return "i1", self.emit(f"icmp {signed} i64 {left[1]}, {right[1]}")
        a, b = self.cast(left, "double"), self.cast(right, "double")
        return "i1", self.emit(f"fcmp {'une' if order == 'ne' else f'o{order}'} double {a}, {b}")

    def value_boolop(self, node: ast.BoolOp) -> Value:
        """``and`` and ``or`` as truth values; later operands are only looked at when they matter."""
        kept, end = f".{self.label()}", self.label()
        for k, operand in enumerate(node.values):
            self.keep(kept, ("i1", self.truth(self.value(operand))))
            if k + 1 < len(node.values):
                more = self.label()
                goes_on = (more, end) if isinstance(node.op, ast.And) else (end, more)
                self.branch(("i1", self.emit(f"load i1, ptr %{kept}.at")), *goes_on)
                self.lines.append(f"{more}:")
        self.place(end)
        return "i1", self.emit(f"load i1, ptr %{kept}.at")

    def value_ifexp(self, node: ast.IfExp) -> Value:
        kept, then, other, end = f".{self.label()}", self.label(), self.label(), self.label()
        self.branch(self.value(node.test), then, other)
        self.lines.append(f"{then}:")
        self.keep(kept, self.value(node.body))
        self.lines += [f"  br label %{end}", f"{other}:"]
        self.keep(kept, self.value(node.orelse))
        self.place(end)
        return self.types[kept], self.emit(f"load {self.types[kept]}, ptr %{kept}.at")

    def value_call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name) or node.keywords:
            self.refuse(node)
        name = node.func.id
        if name == "int" and len(node.args) == 1:
            kind, text = value = self.value(node.args[0])
            return "i64", self.emit(f"fptosi double {text} to i64") if kind == "double" else self.cast(value, "i64")
        if self.function.__globals__.get(name) is math.sqrt and len(node.args) == 1:
            given = self.cast(self.value(node.args[0]), "double")
            return "double", self.emit(f"call double @llvm.sqrt.f64(double {given})")
        if name in ("min", "max") and len(node.args) > 1:
            return self.extreme("lt" if name == "min" else "gt", [self.cast(self.value(x), "i64") for x in node.args])
        return self.called(node, self.function.__globals__.get(name))

    def extreme(self, order: str, given: list[str]) -> Value:
        """Smallest or largest of whole numbers."""
        best = given[0]
        for other in given[1:]:
            chosen = self.compared(order, ("i64", other), ("i64", best))[1]
            best = self.emit(f"select i1 {chosen}, i64 {other}, i64 {best}")
        return "i64", best

    def called(self, node: ast.Call, callee: Any) -> Value:
        """Call another kernel; arrays go by the caller's own names."""
        if not getattr(callee, "__annotations__", None) or len(parameters(callee)) != len(node.args):
            self.refuse(node)
        self.callees.append(callee)
        given = []
        for argument, hint in zip(node.args, parameters(callee).values(), strict=True):
            if (array := array_of(hint)) is None:
                given.append(f"{type_of(hint)} {self.cast(self.value(argument), type_of(hint))}")
                continue
            if not isinstance(argument, ast.Name) or self.arrays.get(argument.id) != array:
                self.refuse(node)
            given.append(f"ptr %{argument.id}")
        result = type_of(callee.__annotations__["return"])
        call = f"call {result} @{callee.__name__}({', '.join(given)})"
        if result == "void":
            self.lines.append(f"  {call}")
            return "void", ""
        return result, self.emit(call)

    # --- statements
    def statements(self, nodes: list[ast.stmt]) -> None:
        """Do one after the other."""
        for node in nodes:
            self.line = node.lineno
            try:
                getattr(self, f"do_{type(node).__name__.lower()}", self.refuse)(node)
            except (LookupError, TypeError, ValueError):  # more or fewer values than there are places for
                self.refuse(node)

    def do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def do_assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Tuple):
                continue
            if len(node.targets) > 1:
                self.refuse(node)
            if isinstance(node.value, ast.Tuple):
                values = [self.value(x) for x in node.value.elts]
            else:
                several = self.value(node.value)
                values = [self.part(several, k) for k in range(len(target.elts))]
            for one, value in zip(target.elts, values, strict=True):
                self.assign(one, value)
            return
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.keep(target.id, value)
        elif isinstance(target, ast.Subscript):
            self.store(*self.address(target), value)
        else:
            self.refuse(target)

    def do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            item, address = self.address(node.target)
            before = self.load(item, address)
            self.store(item, address, self.combine(node, node.op, before, self.value(node.value)))
        elif isinstance(node.target, ast.Name):
            before = self.value_name(node.target)
            self.keep(node.target.id, self.combine(node, node.op, before, self.value(node.value)))
        else:
            self.refuse(node)

    def do_if(self, node: ast.If) -> None:
        then, other, end = self.label(), self.label(), self.label()
        self.branch(self.value(node.test), then, other)
        self.lines.append(f"{then}:")
        self.statements(node.body)
        self.lines += [f"  br label %{end}", f"{other}:"]
        self.statements(node.orelse)
        self.place(end)

    def do_while(self, node: ast.While) -> None:
        again, inside, end = self.label(), self.label(), self.label()
        self.place(again)
        self.branch(self.value(node.test), inside, end)
        self.lines.append(f"{inside}:")
        self.loop(node, again, end)
        self.lines += [f"  br label %{again}", f"{end}:"]

    def loop(self, node: ast.While | ast.For, again: str, end: str) -> None:
        if node.orelse:
            self.refuse(node)
        self.loops.append((again, end))
        self.statements(node.body)
        self.loops.pop()

    def do_for(self, node: ast.For) -> None:
        """``for k in range(...)``; the step is a constant."""
        call = node.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and isinstance(node.target, ast.Name)):
            self.refuse(node)
        values = [("i64", self.cast(self.value(x), "i64")) for x in call.args]
        begin, stop = (values[0], values[1]) if len(values) > 1 else (("i64", "0"), values[0])
        step = self.constant_step(call, values[2][1]) if len(values) > 2 else 1
        counter, test, inside, again, end = f".{self.label()}", *(self.label() for _ in range(4))
        self.keep(counter, begin)
        self.place(test)
        at = ("i64", self.emit(f"load i64, ptr %{counter}.at"))
        self.branch(self.compared("lt" if step > 0 else "gt", at, stop), inside, end)
        self.lines.append(f"{inside}:")
        self.keep(node.target.id, at)
        self.loop(node, again, end)
        self.place(again)
        self.keep(counter, ("i64", self.emit(f"add nsw i64 {at[1]}, {step}")))
        self.lines += [f"  br label %{test}", f"{end}:"]

    def constant_step(self, call: ast.Call, text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) == 0:
            self.refuse(call)
        return int(text)

    def do_break(self, node: ast.Break) -> None:
        self.leave(f"br label %{self.loops[-1][1]}")

    def do_continue(self, node: ast.Continue) -> None:
        self.leave(f"br label %{self.loops[-1][0]}")

    def do_return(self, node: ast.Return) -> None:
        if (node.value is None) != (self.result == "void"):
            self.refuse(node)
        if node.value is None:
            self.leave("ret void")
        elif isinstance(node.value, ast.Tuple):
            kinds = self.result.strip("{} ").split(", ")
            whole = "undef"
            for k, (item, kind) in enumerate(zip(node.value.elts, kinds, strict=True)):
                value = self.cast(self.value(item), kind)
                whole = self.emit(f"insertvalue {self.result} {whole}, {kind} {value}, {k}")
            self.leave(f"ret {self.result} {whole}")
        else:
            self.leave(f"ret {self.result} {self.cast(self.value(node.value), self.result)}")
