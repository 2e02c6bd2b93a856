"""Evaluates the statements and expressions of a Python file as far as their values are known.

A table names the function for each kind of syntax. Syntax without a row, and an operation on an unknown value, becomes
``Unsupported``, and the values that it may change are marked. A call of a name that is not in the file becomes a
``CallExpression``.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

from gateway.importer.python.operations import (
    COMPARISONS,
    KNOWN_FUNCTIONS,
    KNOWN_METHODS,
    MAX_INTEGER,
    OPERATORS,
    STORING,
    Scalar,
    UnknownValue,
    apply,
    delete,
    entry,
    formatted,
    store,
    unknown_if,
)
from gateway.importer.python.values import (
    CallExpression,
    Deleted,
    LocalClass,
    LocalFunction,
    MethodCall,
    NameReference,
    PythonExpression,
    TupleValue,
    Unsupported,
    parts,
)
from gateway.importer.source import Source

MAX_STEPS = 300_000
"""Maximum steps for one file and the files it reads. A statement, an expression and a name that is read are one step
each, in each repetition of a loop."""
ITEMS_PER_STEP = 20
"""Number of characters of a text, or entries of a list, that count as one further step."""
BYTES_PER_STEP = 10
"""Number of bytes of a file that count as one step."""
STEPS_PER_FILE = 100
"""Number of steps for each look for a file, in addition to the bytes of the file."""
MAX_CALLS = 20
"""Maximum depth of calls of local functions."""
MAX_NOTES = 20
STAR = object()
"""The key that represents a ``**`` entry of a mapping."""
CONSTRUCTORS = ("__new__", "__init__", "__post_init__")
"""The methods of a class that a call of the class executes."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class _Break(Exception):
    """The statement ``break``."""


class _Continue(Exception):
    """The statement ``continue``."""


class _Return(Exception):
    """The statement ``return``."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _UnknownPath(Exception):
    """It is not known which statement of a loop or function is executed next."""


class Progress:
    """The state that a file shares with the files it reads: steps, notes, and the values that may have changed."""

    def __init__(self) -> None:
        self.steps = 0
        self.notes: list[str] = []
        """Notes about statements whose effect is not known; at most ``MAX_NOTES``."""
        self.left_out = 0
        """The number of further notes."""
        self.not_read: dict[str, str] = {}
        """Name whose value a ``read_base`` block did not read → the reason. ``*`` is all names of a file."""
        self.changed: dict[int, tuple[Any, Unsupported]] = {}
        """``id`` of a value that a statement may have changed → (the value, the statement as ``Unsupported``)."""
        self.paths: list[str] = []
        """The paths of the files that are being read. The last one is read by the one before."""

    def note(self, text: str) -> None:
        """Add a note about code whose effect is not known."""
        if text in self.notes:
            return
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)
        else:
            self.left_out += 1

    def count(self, steps: int, source: Source, line: int) -> None:
        """Add steps. Raises ``ConfigError`` beyond ``MAX_STEPS``."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise source.refuse(line, "the code needs too many steps; write the plain values instead")


class Evaluator:
    """Evaluates one file. ``names`` and the other attributes are complete after ``run``."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self.names: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        """Name → line of the statement that gave the name its value."""
        self.calls: list[CallExpression] = []
        """The calls that are whole statements."""
        self.methods: list[MethodCall] = []
        """The method calls on results of calls."""
        self._source, self._progress = source, progress
        self._scopes: tuple[dict[str, Any], ...] = (self.names,)
        self._calls = 0
        self._bases: dict[str, Evaluator] = {}
        """Path → the file that a ``read_base`` block of this file reads."""

    def run(self) -> None:
        """Evaluate the file. Raises ``ConfigError``, and ``RecursionError`` or ``MemoryError`` for deep nesting."""
        self._count(len(self._source.data) // BYTES_PER_STEP)
        self._progress.paths.append(self._source.path)
        try:
            self._run(self._tree().body)
        except (_Break, _Continue, _Return):
            raise self._source.refuse(0, "a break, continue or return is outside of a loop or function") from None
        self._progress.paths.pop()

    def _tree(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ast.parse warns about escapes in the strings of the source
                return ast.parse(self._source.text())
        except SyntaxError as error:
            is_transcript = (error.text or "").lstrip().startswith((">>>", "..."))
            hint = "; remove the prompts >>> and ... at the beginnings of its lines" if is_transcript else ""
            raise self._source.refuse(error.lineno or 0, f"the file is not valid Python: {error.msg}{hint}") from None
        except ValueError as error:
            raise self._source.refuse(0, f"the file is not valid Python: {error}") from None

    # ---------------------------------------------------------------- statements

    def _run(self, statements: list[ast.stmt] | tuple[ast.stmt, ...]) -> None:
        for node in statements:
            self._count(1, node.lineno)
            handler = STATEMENTS.get(type(node))
            try:
                if handler is None:
                    raise UnknownValue
                handler(self, node)
            except (UnknownValue, _UnknownPath):
                self._unsupported(node)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is not None:
            found = self._value(node.value)
            if isinstance(node.value, ast.GeneratorExp):  # its items could be read only once
                found = Unsupported("a generator", node.lineno, self._source)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, found)

    def _add(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name | ast.Subscript):
            raise UnknownValue
        old = self._known(self._loaded(node.target))
        value = self._known(node.value)
        is_plain_list = isinstance(old, list) and not isinstance(old, TupleValue)
        if is_plain_list and isinstance(value, TupleValue) and isinstance(node.op, ast.Add):
            value = list(value)
        total = apply(OPERATORS.get(type(node.op), _refuse), old, value)
        if is_plain_list:
            old[:] = total  # the list grows in place, for all names that refer to it
        elif isinstance(old, dict):
            old |= total
        else:
            self._bind(node.target, total)

    def _loaded(self, node: ast.Name | ast.Subscript) -> ast.expr:
        """Return a target as the expression that reads its value."""
        if isinstance(node, ast.Name):
            return ast.copy_location(ast.Name(node.id, ast.Load()), node)
        return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(found := self._value(node.value), CallExpression):
            self.calls.append(found)
            self._mark_arguments(found, None, is_statement=True)

    def _loop(self, node: ast.For) -> None:
        items = self._iterated(node.iter)
        for item in items:
            self._bind(node.target, item)
            try:
                self._run(node.body)
            except _Break:
                return
            except _Continue:
                pass
            self._checked(items)
        self._run(node.orelse)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            full = module + (alias.name if alias.asname or module else bound)
            self._set(bound, NameReference(alias.name, node.lineno, self._source, full), node)

    def _with(self, node: ast.With) -> None:
        unknown_if(not _reads_base(node))
        for one in node.body:
            if isinstance(one, ast.ImportFrom):
                self._read_base(one)
            else:
                self._unsupported(one)

    def _function(self, node: ast.FunctionDef) -> None:
        unknown_if(node.decorator_list)
        for one in ast.walk(node):
            self._count(1, node.lineno)
            unknown_if(isinstance(one, ast.Yield | ast.YieldFrom))
        self._set(node.name, self._made_function(node.name, node, tuple(node.body)), node)

    def _class(self, node: ast.ClassDef) -> None:
        for one in (*node.decorator_list, *node.bases, *[word.value for word in node.keywords]):
            self._value(one)
        names: dict[str, Any] = {}
        with self._scope(*self._scopes, names):
            self._run(node.body)
        made = tuple([names[name] for name in CONSTRUCTORS if isinstance(names.get(name), LocalFunction)])
        self._set(node.name, LocalClass(node.name, node.lineno, self._source, functions=made), node)

    def _return(self, node: ast.Return) -> None:
        raise _Return(None if node.value is None else self._value(node.value))

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                name = target.id
                self._set(name, Deleted(f"{name}, which was deleted", node.lineno, self._source), node)
            elif isinstance(target, ast.Subscript):
                apply(delete, self._known(target.value), self._known(target.slice))
            else:
                raise UnknownValue

    # ---------------------------------------------------------------- names

    def _bind(self, target: ast.expr, value: Any) -> None:
        """Assign a value to a target: a name, an entry, or several of them."""
        match target:
            case ast.Name(id=name):
                self._set(name, value, target)
            case ast.Tuple(elts=targets) | ast.List(elts=targets) if (
                isinstance(value, list) and len(value) == len(targets) and id(value) not in self._progress.changed
            ):
                for one, item in zip(targets, value, strict=True):
                    self._bind(one, item)
            case ast.Subscript(value=holder, slice=key) if isinstance(owner := self._value(holder), list | dict):
                try:
                    apply(store, owner, self._known(key), value)
                except UnknownValue:
                    self._unsupported(target)
            case _:
                self._unsupported(target)

    def _set(self, name: str, value: Any, node: ast.expr | ast.stmt) -> None:
        self._scopes[-1][name] = value
        if len(self._scopes) == 1:
            self.lines[name] = node.lineno

    def _find(self, name: str, default: Any = None) -> Any:
        """Return the value of a name; ``default`` if the file does not define the name."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), default)

    @contextmanager
    def _scope(self, *scopes: dict[str, Any]) -> Iterator[None]:
        before, self._scopes = self._scopes, scopes
        try:
            yield
        finally:
            self._scopes = before

    def _read_base(self, node: ast.ImportFrom) -> None:
        where = "." * node.level + (node.module or "")
        file = f"{self._source.short_name}, " if len(self._progress.paths) > 1 else ""
        at = f"{file}line {node.lineno}"
        base = self._read_module(node)
        found = {} if isinstance(base, str) else base.names
        if isinstance(base, str):
            names = ", ".join([alias.name for alias in node.names])
            self._progress.note(f"{at}: {where} {base}, so {names} was not read")
        for alias in node.names:
            chosen = list(found) if alias.name == "*" and found else [alias.name]
            self._count(len(chosen), node.lineno)
            for name in chosen:
                if name in found:
                    self._set(alias.asname or name, found[name], node)
                else:
                    missing = Unsupported(f"{name} of {where}, which was not read", node.lineno, self._source)
                    self._set(alias.asname or name, missing, node)
                    reason = base if isinstance(base, str) else f"has no {name}"
                    self._progress.not_read[alias.asname or name] = f"{at}: {where} {reason}"

    def _read_module(self, node: ast.ImportFrom) -> Evaluator | str:
        """Evaluate the file of a ``read_base`` import, or return the reason why it is not read.

        Each file that imports a base has values of its own, as in mmengine, so a base may be evaluated several times.
        """
        relative = (node.module or "").replace(".", "/") + ".py"
        if node.level:
            folder = posixpath.dirname(self._source.path)
            candidates = [posixpath.normpath(posixpath.join(folder, *[".."] * (node.level - 1), relative))]
        else:
            package, _, rest = relative.partition("/")
            roots = self._source.roots
            candidates = [posixpath.join(root, rest) for root in roots if posixpath.basename(root) == package]
            candidates += [posixpath.join(root, relative) for root in roots]
        for path in candidates:
            if path in self._bases:
                return self._bases[path]
            if path in self._progress.paths:
                return "reads this file again"
            self._count(STEPS_PER_FILE, node.lineno)
            if (data := self._source.read_file(path)) is not None:
                found = self._bases[path] = Evaluator(self._source.other(path, data), self._progress)
                found.run()
                return found
        if node.level == 1:
            way = f"put {relative} there (a link out of the folder is not read), or correct the name"
            return f"was not found beside {self._source.short_name}; {way}"
        searched = " and ".join(["the config's folder", *self._source.roots])
        return f"was not found in {searched}; name the folder of its package with --root"

    # ---------------------------------------------------------------- what is not supported

    def _unsupported(self, node: ast.expr | ast.stmt, text: str = "") -> Unsupported:
        """Return an ``Unsupported`` for a part of the file. Names that this part defines lose their plain value.

        Values that the part may change are marked: its lists and mappings, and values in paths like ``a.b[0]``. Raises
        ``_UnknownPath`` for a statement that may leave a loop or function.
        """
        is_value = isinstance(node, ast.expr)
        what = "an expression that is not a plain value" if is_value else "a value that a statement may change"
        found = Unsupported(text or what, node.lineno, self._source)
        self._lose(node, node, found, set())
        if isinstance(node, ast.stmt) and _leaves(node):
            raise _UnknownPath
        return found

    def _lose(self, tree: ast.AST, node: ast.expr | ast.stmt, found: Unsupported, functions: set[int]) -> None:
        """Mark the values that a part of the file may change. Names that it defines get the value ``found``.

        ``functions``: the ``id`` of each function of the file whose body was already searched.
        """
        for one in ast.walk(tree):
            self._count(1, node.lineno)
            match one:
                case ast.Name(id=name, ctx=context):
                    if not isinstance(value := self._find(name), CallExpression):
                        self._mark_parts(value, found, functions)
                    if not isinstance(context, ast.Load):
                        self._set(name, found, node)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self._set(name, Unsupported(f"the function {name}", one.lineno, self._source), node)
                case ast.ClassDef(name=name):
                    self._set(name, NameReference(name, one.lineno, self._source), node)
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    for scope in self._scopes:
                        scope.update(dict.fromkeys(names, found))
                case ast.With() if _reads_base(one):
                    self._lose_base(one)
                case ast.alias(name=name, asname=other):
                    self._lose_import(other or name.split(".")[0], found, node)
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    self._set(name, found, node)
                case ast.MatchMapping(rest=str(name)):
                    self._set(name, found, node)
                case ast.NamedExpr(target=ast.Name(id=name)):
                    for scope in self._scopes:
                        scope[name] = found
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if isinstance(
                    value := self._find(name), CallExpression
                ):
                    self._progress.note(f"line {one.lineno}: the effect of .{method}() on {value} was not imported")
                case (
                    ast.Call(func=ast.Attribute(value=path))
                    | ast.Attribute(ctx=ast.Store() | ast.Del(), value=path)
                    | ast.Subscript(ctx=ast.Store() | ast.Del(), value=path)
                ):
                    self._mark(path, found, functions)

    def _lose_base(self, node: ast.With) -> None:
        """List the names of a ``read_base`` block that is inside of an unknown statement."""
        for one in ast.walk(node):
            self._count(1, node.lineno)
            if isinstance(one, ast.ImportFrom):
                where = "." * one.level + (one.module or "")
                for alias in one.names:
                    name = alias.asname or alias.name
                    missing = Unsupported(f"{name} of {where}, which may not be read", one.lineno, self._source)
                    self._set(name, missing, one)
                    self._progress.not_read[name] = f"line {one.lineno}: it is not known whether {where} is read"

    def _lose_import(self, name: str, found: Unsupported, node: ast.expr | ast.stmt) -> None:
        """Give an imported name the value ``found``. A name without a plain value stays the name of an import."""
        if name in self._scopes[-1] and not isinstance(self._scopes[-1][name], NameReference):
            self._set(name, found, node)
        elif name not in self._scopes[-1]:
            self._set(name, NameReference(name, node.lineno, self._source, name), node)

    def _mark(self, path: ast.expr, found: Unsupported, functions: set[int]) -> None:
        """Mark all values inside the first name of a path such as ``a.b[0]``."""
        while isinstance(path, ast.Attribute | ast.Subscript | ast.Call):
            path = path.func if isinstance(path, ast.Call) else path.value
        if isinstance(path, ast.Name):
            self._mark_parts(self._find(path.id), found, functions)

    def _mark_parts(self, value: Any, found: Unsupported, functions: set[int]) -> None:
        """Mark all values inside a value, and all values that the functions of the file inside it may change."""
        for part in parts(value):
            if isinstance(part, list | dict | CallExpression):  # equal texts may be one object
                self._count(1 + (0 if isinstance(part, CallExpression) else len(part) // ITEMS_PER_STEP), found.line)
                self._progress.changed.setdefault(id(part), (part, found))
            elif isinstance(part, LocalFunction) and id(part) not in functions:
                functions.add(id(part))
                self._lose_function(part, found, functions)

    def _lose_function(self, function: LocalFunction, found: Unsupported, functions: set[int]) -> None:
        """Mark the values that the body of a function may change."""
        given = function.arguments
        several = [one for one in (given.vararg, given.kwarg) if one is not None]
        names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several)]
        with self._scope(*function.scopes, {**dict.fromkeys(names, found), **function.defaults}):
            for statement in function.body:
                self._lose(statement, statement, found, functions)

    def _count(self, steps: int, line: int = 0) -> None:
        self._progress.count(steps, self._source, line)

    # ---------------------------------------------------------------- expressions

    def _value(self, node: ast.expr) -> Any:
        """Return the value of an expression. The value may be unknown, or a statement may have changed it."""
        handler = EXPRESSIONS.get(type(node))
        try:
            if handler is None:
                raise UnknownValue
            value = handler(self, node)
        except UnknownValue:
            value = self._unsupported(node)
        size = len(value) // ITEMS_PER_STEP if isinstance(value, str | list | dict) else 0
        self._count(1 + size, node.lineno)
        return value

    def _known(self, node: ast.expr) -> Any:
        """Return the value of an expression. Raises ``UnknownValue`` if the value is unknown or may have changed."""
        return self._checked(self._value(node))

    def _checked(self, value: Any) -> Any:
        unknown_if(isinstance(value, PythonExpression) or id(value) in self._progress.changed)
        return value

    def _iterated(self, node: ast.expr) -> list[Any]:
        """Return the items of a loop. A list is returned without a copy."""
        items = self._known(node)
        unknown_if(not isinstance(items, str | list | dict))
        return items if isinstance(items, list) else list(items)

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, str) and (half := re.search("[\ud800-\udfff]", node.value)) is not None:
            return self._unsupported(node, f"the incomplete character {half[0]!a}")
        unknown_if(not isinstance(node.value, Scalar) or (isinstance(node.value, int) and node.value > MAX_INTEGER))
        return node.value

    def _name(self, node: ast.Name) -> Any:
        is_module = node.id == "__name__"
        return self._find(node.id, "config" if is_module else NameReference(node.id, node.lineno, self._source))

    def _attribute(self, node: ast.Attribute) -> Any:
        if name := self._dotted(node):
            first, _, rest = name.partition(".")
            owner = self._find(first)
            module = (owner.full_name or first) if isinstance(owner, NameReference) else first
            return NameReference(name, node.lineno, self._source, f"{module}.{rest}")
        # mmengine's mappings have their keys as attributes too
        owner = self._known(node.value)
        unknown_if(not isinstance(owner, dict))
        return apply(entry, owner, node.attr)

    def _list(self, node: ast.List | ast.Tuple) -> list[Any]:
        items = self._items(node.elts)
        return TupleValue(items) if isinstance(node, ast.Tuple) else items

    def _dict(self, node: ast.Dict) -> Any:
        return self._mapping([STAR if key is None else self._value(key) for key in node.keys], node.values, node)

    def _operation(self, op: ast.operator | ast.unaryop, *operands: ast.expr) -> Any:
        return apply(OPERATORS.get(type(op), _refuse), *map(self._known, operands))

    def _bool(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for one in node.values:
            value = self._known(one)
            if bool(value) is isinstance(node.op, ast.Or):
                break
        return value

    def _compare(self, node: ast.Compare) -> bool:
        left = self._known(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._known(comparator)
            if not apply(COMPARISONS[type(op)], left, right):
                return False
            left = right
        return True

    def _formatted(self, node: ast.FormattedValue) -> Any:
        spec = "" if node.format_spec is None else self._known(node.format_spec)
        return apply(formatted, self._known(node.value), node.conversion, spec)

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*[None if one is None else self._known(one) for one in (node.lower, node.upper, node.step)])

    def _lambda(self, node: ast.Lambda) -> LocalFunction:
        return self._made_function("lambda", node, (ast.copy_location(ast.Return(node.body), node.body),))

    # ---------------------------------------------------------------- comprehensions

    def _list_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> list[Any]:
        found: list[Any] = []
        self._comprehend(node.generators, lambda: found.append(self._value(node.elt)))
        return found

    def _dict_comprehension(self, node: ast.DictComp) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        self._comprehend(node.generators, lambda: apply(store, found, self._known(node.key), self._value(node.value)))
        return found

    def _comprehend(self, generators: list[ast.comprehension], add: Callable[[], Any]) -> None:
        """Call ``add`` for each item. The names of the comprehension have a scope of their own."""
        first = self._iterated(generators[0].iter)
        with self._scope(*self._scopes, {}):
            self._each(first, generators, add)

    def _each(self, items: list[Any], generators: list[ast.comprehension], add: Callable[[], Any]) -> None:
        generator, *inner = generators
        for item in items:
            self._bind(generator.target, item)
            if not all(self._known(one) for one in generator.ifs):
                continue
            if inner:
                self._each(self._iterated(inner[0].iter), inner, add)
            else:
                add()

    # ---------------------------------------------------------------- calls

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name | ast.Attribute) and (name := self._dotted(node.func)):
            return self._named_call(name, node)
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            if isinstance(owner, CallExpression) and isinstance(node.func.value, ast.Call):
                self.methods.append(MethodCall(owner, node.func.attr, tuple(self._items(node.args))))
            return self._method(self._checked(owner), node.func.attr, node)
        raise UnknownValue

    def _named_call(self, name: str, node: ast.Call) -> Any:
        function = self._find(name)
        if isinstance(function, LocalFunction):
            return self._local_call(function, node)
        if isinstance(function, Unsupported):
            raise UnknownValue  # a function defined in the file may change its arguments
        full = name
        if isinstance(found := self._value(node.func), NameReference):
            full = found.full_name or name
        if name in ("locals", "globals") and function is None and not node.args:
            return self._scopes[-1 if name == "locals" else 0]
        args, words = self._items(node.args), self._keywords(node)
        if isinstance(words, Unsupported):
            return words if name == "dict" else self._unsupported(node)
        if (function is None or full != name or "." in full) and (operation := KNOWN_FUNCTIONS.get(full)) is not None:
            with suppress(UnknownValue):  # the function changes no argument
                return apply(operation, *map(self._readable, args), **self._arguments(name, words))
        if full == "copy.deepcopy" and len(args) == 1:
            return self._deep_copy(args[0])
        call = CallExpression(name, node.lineno, self._source, tuple(args), words)
        self._mark_arguments(call, function)
        return call

    def _mark_arguments(self, call: CallExpression, function: Any, *, is_statement: bool = False) -> None:
        """Mark the values that a call may change: the arguments of a function or method whose code is not known.

        A call whose result is kept is marked only if it gets functions of the file, or if it executes the constructor
        of a class of the file. A name with a capital letter is a class, which stores its arguments.
        """
        arguments = [*call.args, *call.keywords.values()]
        found = Unsupported(f"a value that {call.text}() may change", call.line, self._source)
        constructors = function.functions if isinstance(function, LocalClass) else ()
        if call.text in ("exec", "eval"):
            arguments += [value for scope in self._scopes for value in scope.values()]
            is_statement = True
        has_functions = constructors or any(isinstance(one, LocalFunction) for one in arguments)
        is_inert = call.text in KNOWN_FUNCTIONS or call.last.lstrip("_")[:1].isupper()
        changed: set[int] = set()
        for value in (*constructors, *arguments):
            if isinstance(value, CallExpression):
                if is_statement:
                    self._mark_arguments(value, None, is_statement=True)
            elif constructors or (not is_inert and (is_statement or has_functions)):
                self._mark_parts(value, found, changed)

    def _arguments(self, name: str, words: dict[str, Any]) -> dict[str, Any]:
        return words if name == "dict" else {key: self._readable(value) for key, value in words.items()}

    def _readable(self, value: Any) -> Any:
        """Return an argument. Raises ``UnknownValue`` if the argument, or an entry of it, may have changed."""
        for one in (value, *(value if isinstance(value, list) else ())):
            unknown_if(id(one) in self._progress.changed)
        return self._checked(value)

    def _method(self, owner: Any, method: str, node: ast.Call) -> Any:
        if isinstance(owner, dict | list) and method == "deepcopy":
            return self._deep_copy(owner)
        apply_to = KNOWN_METHODS.get((type(owner), method))
        args, words = self._items(node.args), self._keywords(node)
        if apply_to is None or not isinstance(words, dict):
            raise UnknownValue
        if method not in STORING:
            args = [self._readable(one) for one in args]
            words = self._arguments("dict" if method == "update" else method, words)
        return apply(apply_to, owner, *args, **words)

    def _deep_copy(self, value: Any) -> Any:
        """Return a copy of a value and of the lists and mappings inside it. Unknown values are not copied."""
        kept: dict[int, Any] = {}
        for part in parts(self._checked(value)):
            self._count(1)
            unknown_if(id(part) in self._progress.changed)
            if isinstance(part, PythonExpression):
                kept[id(part)] = part
        return deepcopy(value, kept)

    def _made_function(
        self, name: str, node: ast.FunctionDef | ast.Lambda, body: tuple[ast.stmt, ...]
    ) -> LocalFunction:
        given = node.args
        named = [one.arg for one in (*given.posonlyargs, *given.args)]
        defaults = dict(zip(reversed(named), [self._value(one) for one in reversed(given.defaults)], strict=False))
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if default is not None:
                defaults[one.arg] = self._value(default)
        return LocalFunction(name, node.lineno, self._source, given, body, defaults, self._scopes)

    def _local_call(self, function: LocalFunction, node: ast.Call) -> Any:
        """Evaluate a call of a function of the file."""
        given = function.arguments
        args, words = self._items(node.args), self._keywords(node)
        named = [one.arg for one in (*given.posonlyargs, *given.args)]
        unknown_if(isinstance(words, Unsupported) or given.vararg or given.kwarg or len(args) > len(named))
        bound = {**function.defaults, **dict(zip(named, args, strict=False)), **words}
        unknown_if(bound.keys() != {*named, *[one.arg for one in given.kwonlyargs]} or self._calls >= MAX_CALLS)
        self._calls += 1
        with self._scope(*function.scopes, bound):
            try:
                self._run(function.body)
            except _Return as found:
                return found.value
            except _UnknownPath:
                for statement in function.body:
                    with suppress(_UnknownPath):
                        self._unsupported(statement)
                raise UnknownValue from None
            finally:
                self._calls -= 1
        return None

    def _dotted(self, node: ast.expr) -> str:
        """Return a dotted name such as ``a.b.c`` if ``a`` has no value in the file; empty for any other expression."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or (names and not isinstance(self._find(node.id), NameReference | None)):
            return ""
        return ".".join([node.id, *reversed(names)])

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                try:
                    items = apply(OPERATORS[ast.Add], items, list(self._iterated(node.value)))
                except UnknownValue:
                    items.append(Unsupported("`*` before a value that is not a list", node.lineno, self._source))
            else:
                items.append(self._value(node))
        return items

    def _keywords(self, node: ast.Call) -> Any:
        """Return the keyword arguments of a call; ``Unsupported`` if they are not known."""
        return self._mapping([one.arg or STAR for one in node.keywords], [one.value for one in node.keywords], node)

    def _mapping(self, keys: list[Any], values: list[ast.expr], at: ast.expr) -> Any:
        """Return a mapping of keys to values. For ``**other``, the key is ``STAR``, and the entries are merged."""
        found: dict[Any, Any] = {}
        is_known = True
        for key, node in zip(keys, values, strict=True):
            value = self._value(node)
            is_changed = id(value) in self._progress.changed
            if key is STAR and isinstance(value, dict) and not is_changed:
                found |= value
            elif isinstance(key, str | int):
                found[key] = value
            else:
                is_known = False  # the values after it are still evaluated, because they may change others
        if is_known:
            return found
        return Unsupported("a mapping with keys that are not plain values", at.lineno, self._source)


def _refuse(*args: Any) -> Any:
    raise UnknownValue


def _reads_base(node: ast.With) -> bool:
    match node.items[0].context_expr:
        case ast.Call(func=ast.Name(id="read_base") | ast.Attribute(attr="read_base")):
            return True
    return False


def _leaves(node: ast.AST, in_loop: bool = False) -> bool:
    """Return whether a statement may end a loop or function around it."""
    if isinstance(node, SCOPES):
        return False
    if isinstance(node, ast.Break | ast.Continue):
        return not in_loop
    inside = in_loop or isinstance(node, LOOPS)
    return isinstance(node, ast.Return) or any(_leaves(one, inside) for one in ast.iter_child_nodes(node))


def _break(evaluator: Evaluator, node: ast.Break) -> None:
    raise _Break


def _continue(evaluator: Evaluator, node: ast.Continue) -> None:
    raise _Continue


STATEMENTS: Mapping[type[ast.stmt], Callable[[Evaluator, Any], None]] = {
    ast.AnnAssign: Evaluator._assign,
    ast.Assert: lambda self, node: self._value(node.test),
    ast.Assign: Evaluator._assign,
    ast.AugAssign: Evaluator._add,
    ast.Break: _break,
    ast.ClassDef: Evaluator._class,
    ast.Continue: _continue,
    ast.Delete: Evaluator._delete,
    ast.Expr: Evaluator._expression,
    ast.For: Evaluator._loop,
    ast.FunctionDef: Evaluator._function,
    ast.If: lambda self, node: self._run(node.body if self._known(node.test) else node.orelse),
    ast.Import: Evaluator._import,
    ast.ImportFrom: Evaluator._import,
    ast.Pass: lambda self, node: None,
    ast.Return: Evaluator._return,
    ast.With: Evaluator._with,
}
"""Kind of statement → function that evaluates it. The function raises ``UnknownValue`` if the effect is not known."""
EXPRESSIONS: Mapping[type[ast.expr], Callable[[Evaluator, Any], Any]] = {
    ast.Attribute: Evaluator._attribute,
    ast.BinOp: lambda self, node: self._operation(node.op, node.left, node.right),
    ast.BoolOp: Evaluator._bool,
    ast.Call: Evaluator._call,
    ast.Compare: Evaluator._compare,
    ast.Constant: Evaluator._constant,
    ast.Dict: Evaluator._dict,
    ast.DictComp: Evaluator._dict_comprehension,
    ast.FormattedValue: Evaluator._formatted,
    ast.GeneratorExp: Evaluator._list_comprehension,
    ast.IfExp: lambda self, node: self._value(node.body if self._known(node.test) else node.orelse),
    ast.JoinedStr: lambda self, node: apply("".join, [self._known(one) for one in node.values]),
    ast.Lambda: Evaluator._lambda,
    ast.List: Evaluator._list,
    ast.ListComp: Evaluator._list_comprehension,
    ast.Name: Evaluator._name,
    ast.Set: lambda self, node: apply(KNOWN_FUNCTIONS["set"], self._items(node.elts)),
    ast.SetComp: lambda self, node: apply(KNOWN_FUNCTIONS["set"], self._list_comprehension(node)),
    ast.Slice: Evaluator._slice,
    ast.Subscript: lambda self, node: apply(entry, self._known(node.value), self._known(node.slice)),
    ast.Tuple: Evaluator._list,
    ast.UnaryOp: lambda self, node: self._operation(node.op, node.operand),
}
"""Kind of expression → function that returns its value. The function raises ``UnknownValue`` if it is not known."""
