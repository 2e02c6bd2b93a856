"""What text does a Go template make? A small evaluator with Go's rules for truth, equality and what it prints.

Where Go fails, or does something that is not followed here, rendering raises; nothing is guessed. Steps and lengths are
bounded, because templates are foreign programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.importer.go.functions import FUNCTIONS, MOST_TEXT, Struct, true
from gateway.importer.go.tree import Action, Branch, Function, GoError, Jump, Literal, Node, Path, Pipe, Text

MOST_STEPS = 200_000


class _Jumped(Exception):
    """``break`` or ``continue`` on its way to the loop."""

    def __init__(self, jump: Jump) -> None:
        super().__init__(jump.word)
        self.jump = jump


def render(nodes: Sequence[Node], data: Mapping[str, Any]) -> str:
    """The text of a template on its data. Raises ``GoError``."""
    run = _Run(data)
    try:
        run.walk(nodes, data, {"$": data})
    except _Jumped as jumped:
        raise GoError(jumped.jump.line, f"`{jumped.jump.word}` outside of a range") from None
    return "".join(run.out)


class _Run:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self.out: list[str] = []
        self._left = MOST_STEPS
        self._length = 0

    def _print(self, text: str, line: int) -> None:
        self._count(text, line)
        self.out.append(text)

    def _count(self, text: str, line: int) -> None:
        """Everything printed or put together is paid for, kept or not."""
        self._length += len(text)
        if self._length > MOST_TEXT:
            raise GoError(line, f"the text grows beyond {MOST_TEXT} characters")

    def walk(self, nodes: Sequence[Node], dot: Any, variables: dict[str, Any]) -> None:
        """Print the nodes; variables declared in them end with them, those set in them do not."""
        own: dict[str, Any] = _Scope(variables)
        for node in nodes:
            self._left -= 1
            if self._left < 0:
                raise GoError(0, f"takes more than {MOST_STEPS} steps")
            match node:
                case Text(text):
                    self._print(text, 0)
                case Action(pipe):
                    value = self._pipe(pipe, dot, own)
                    if not pipe.variables:
                        self._print(_printed(value, pipe.line), pipe.line)
                case Branch(word="range"):
                    self._range(node, dot, own)
                case Branch(word, pipe, body, other):
                    inner = _Scope(own)
                    value = self._pipe(pipe, dot, inner)
                    chosen, seen = (body, value if word == "with" else dot) if true(value) else (other, dot)
                    self.walk(chosen, seen, inner)
                case Jump():
                    raise _Jumped(node)

    def _range(self, node: Branch, dot: Any, variables: dict[str, Any]) -> None:
        pipe = node.pipe
        items = self._pipe(Pipe(pipe.commands, (), False, pipe.line), dot, variables)
        if items is not None and not isinstance(items, list):
            raise GoError(pipe.line, "`range` over what is no list")
        if not items:
            self.walk(node.other, dot, variables)
            return
        for number, item in enumerate(items):
            own = _Scope(variables)
            named = (item,) if len(pipe.variables) == 1 else (number, item)
            for name, value in zip(pipe.variables, named, strict=False):
                _set(own, name, value, pipe)
            try:
                self.walk(node.body, item, own)
            except _Jumped as jumped:
                if jumped.jump.word == "break":
                    return

    # ------------------------------------------------------------ values

    def _pipe(self, pipe: Pipe, dot: Any, variables: dict[str, Any]) -> Any:
        value: Any = None
        for number, command in enumerate(pipe.commands):
            given = (value,) if number else ()
            first = command[0]
            if isinstance(first, Function):
                value = self._call(first, command[1:], given, dot, variables)
            elif isinstance(first, Literal) and first.value is None:
                raise GoError(first.line, "`nil` stands alone: it is an argument only")
            elif len(command) > 1 or given:
                raise GoError(pipe.line, "a value is given arguments, and only functions take some")
            else:
                value = self._operand(first, dot, variables)
        for name in pipe.variables:
            assert isinstance(variables, _Scope)
            _set(variables, name, value, pipe)
        return value

    def _call(
        self, function: Function, operands: Sequence[Any], given: tuple[Any, ...], dot: Any, variables: dict[str, Any]
    ) -> Any:
        name, line = function.name, function.line
        if name in ("and", "or"):  # the only ones that leave arguments unread
            if not operands and not given:
                raise GoError(line, f"`{name}` needs something to choose from")
            value: Any = None
            for operand in operands:
                value = self._operand(operand, dot, variables)
                if true(value) == (name == "or"):
                    return value
            return given[0] if given else value
        arguments = [*[self._operand(operand, dot, variables) for operand in operands], *given]
        try:
            value = FUNCTIONS[name](line, *arguments)
        except TypeError:
            raise GoError(line, f"`{name}` cannot take these {len(arguments)} arguments") from None
        if isinstance(value, str):
            self._count(value, line)
        return value

    def _operand(self, operand: Any, dot: Any, variables: dict[str, Any]) -> Any:
        self._left -= 1
        match operand:
            case Literal(value):
                return value
            case Pipe():
                return self._pipe(operand, dot, _Scope(variables))
            case Function():
                return self._call(operand, (), (), dot, variables)
            case Path(root, fields, line):
                if isinstance(root, Pipe):
                    value = self._pipe(root, dot, _Scope(variables))
                elif not root:
                    value = dot
                elif root in variables:
                    value = variables[root]
                else:
                    raise GoError(line, f"{root} has no value here")
                for field in fields:
                    value = _field(value, field, line)
                return value
        raise GoError(0, "an operand that is not read")


class _Scope(dict[str, Any]):
    """Variables of a block; looking up and setting reach the blocks around."""

    def __init__(self, around: dict[str, Any]) -> None:
        super().__init__()
        self._around = around

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self._around

    def __missing__(self, name: str) -> Any:
        return self._around[name]

    def declare(self, name: str, value: Any) -> None:
        """A variable of this block."""
        self[name] = value

    def assign(self, name: str, value: Any) -> bool:
        """Set the variable where it was declared; False: nowhere."""
        if dict.__contains__(self, name):
            self[name] = value
            return True
        if isinstance(self._around, _Scope):
            return self._around.assign(name, value)
        return False


def _set(scope: _Scope, name: str, value: Any, pipe: Pipe) -> None:
    if pipe.declares:
        scope.declare(name, value)
    elif not scope.assign(name, value):
        raise GoError(pipe.line, f"{name} is set before it is declared: write :=")


def _field(value: Any, field: str, line: int) -> Any:
    if isinstance(value, Struct):
        if field not in value:
            raise GoError(line, f".{field} is no field here; there are {', '.join(value)}")
        return value[field]
    if isinstance(value, Mapping):
        return value.get(field)
    raise GoError(line, f".{field} of what has no fields")


def _printed(value: Any, line: int) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise GoError(line, "prints a value that is no text")
