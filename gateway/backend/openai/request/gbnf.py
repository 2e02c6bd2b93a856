"""JSON Schema to GBNF, the grammars of llama.cpp, for an engine that accepts only a grammar.

Each text of the grammar is JSON that the schema accepts. The grammar has a part of a schema's JSON: properties stand in
the order of the schema, and only declared properties are written. White space has a limited length. The keywords:

``type`` (also a list), ``enum``, ``const``, ``anyOf``, ``$ref`` into the schema itself, also recursive
objects  ``properties``, ``required``, ``additionalProperties`` (false, true, or a schema if ``properties`` is absent)
arrays   ``items``, ``minItems``, ``maxItems``
strings  ``minLength``, ``maxLength``

``ANNOTATIONS`` have no effect, and every other keyword is refused. References that begin with themselves are refused,
and so are alternatives that begin alike inside each other (``alternatives.py``). The limits protect the
engine: llama.cpp copies a rule for each repetition, and refuses 2000 and more (src/llama-grammar.cpp, 04332939).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import unquote

from gateway.backend.openai.request.alternatives import AlternativeCounter
from gateway.backend.openai.request.control_fields import words
from gateway.core.errors import UnsupportedParameter
from gateway.core.words import printable

MAX_REPETITION = 1000
"""The largest ``minLength``, ``maxLength``, ``minItems`` and ``maxItems``."""
MAX_REPETITIONS = 20_000
"""The largest sum of the repetitions of one grammar."""
MAX_PARTS = 1000
"""The largest number of schemas and constants in a schema. llama.cpp follows chains of rules recursively."""
MAX_ALIKE = 64
"""The largest number of alternatives that the engine must follow at once (``alternatives.py``)."""
MAX_STEPS = 5000
"""The largest number of schemas that are compared with each other."""
MAX_CHARACTERS = 256 * 1024
"""The largest length of a grammar."""

SCHEMA_PATH = ("response_format", "json_schema", "schema")

ANNOTATIONS = words(
    "$comment $defs $schema default definitions deprecated description discriminator example examples readOnly title "
    "writeOnly"
)
"""Keywords that do not change which JSON a schema accepts."""

KEYWORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "object": words("additionalProperties properties required"),
        "array": words("items maxItems minItems"),
        "string": words("maxLength minLength"),
        "number": words(""),
        "integer": words(""),
        "boolean": words(""),
        "null": words(""),
    }
)
"""Type → its keywords, which have no effect on values of another type."""

JSON_RULES: Mapping[str, str] = MappingProxyType(
    {
        "value": "object | array | string | number | boolean | null",
        "object": '"{" ws ( pair ( "," ws pair )* )? ws "}"',
        "pair": 'string ":" ws value',
        "array": '"[" ws ( value ( "," ws value )* )? ws "]"',
        "string": r'"\"" char* "\""',
        "char": r'[^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" code )',
        # A character outside the basic plane is a pair of surrogates; a surrogate alone is not a character.
        "code": r'[0-9abcefABCEF] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2}',
        "hex": "[0-9a-fA-F]",
        "number": 'integer ( "." [0-9]{1,17} )? ( [eE] [-+]? [0-9]{1,2} )?',
        "integer": '"-"? ( "0" | [1-9] [0-9]{0,15} )',
        "boolean": '"true" | "false"',
        "null": '"null"',
        "ws": r'( " " | "\n" [ \t]{0,20} )?',
    }
)
"""The rules that every grammar has: name → definition."""

ALIKE = (
    "too many alternatives begin alike, with more alternatives inside; begin the properties of each alternative with a "
    "required one that has a const of its own"
)

Path = tuple[str, ...]


def grammar_of(schema: Mapping[str, Any] | None) -> str:
    """Return the grammar of the JSON that a schema accepts; of any JSON object if the schema is None.

    Raises ``UnsupportedParameter``, whose ``param`` is the path of the keyword that a grammar cannot express.
    """
    if schema is None:
        return _written({"root": "object", **JSON_RULES})
    return _SchemaGrammar(schema).text()


def _written(rules: Mapping[str, str]) -> str:
    return "".join([f"{name} ::= {definition}\n" for name, definition in rules.items()])


class _SchemaGrammar:
    """The rules of one schema's grammar. A method that returns an expression adds the rules to which it refers."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {}
        self._characters = 0
        self._parts = 0
        self._repetitions = 0
        self._references: dict[str, str] = {}
        """Pointer → the name of its rule."""
        self._pending: list[tuple[str, Any, Path]] = []
        """Rules of references whose definitions are still to be made: name, schema, and the schema's path."""
        self._first: dict[str, dict[str, Path]] = {}
        """Rule of a reference → the rules of references with which its text may begin, and their paths."""
        self._owner = ""
        """The rule of the reference whose definition is being made."""
        self._alike = 1
        """The number of alternatives that the engine must follow at once at the present place in the definition."""
        self._most_alike: dict[str, int] = {}
        """Rule of a reference → the largest value of ``_alike`` in its definition."""
        self._inside: dict[str, dict[str, tuple[int, Path]]] = {}
        """Rule of a reference → the rules of references in it, each with ``_alike`` at its place, and its path."""
        self._alternatives = AlternativeCounter(self._referred)
        self._steps = 0

    def text(self) -> str:
        """Return the grammar."""
        root = self._reference("#", SCHEMA_PATH, "")
        while self._pending:
            name, schema, path = self._pending.pop()
            self._owner = name
            self._define(name, self._expression(schema, path, name), path)
        self._refuse_left_recursion()
        self._refuse_many_alike(root)
        return _written({"root": root, **self._rules, **JSON_RULES})

    # ---------------------------------------------------------------- rules

    def _define(self, name: str, definition: str, path: Path) -> None:
        self._rules[name] = definition
        self._characters += len(definition)
        if self._characters > MAX_CHARACTERS:
            _refuse(path, f"the grammar would have more than {MAX_CHARACTERS} characters")

    def _count_part(self, path: Path) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            _refuse(path, f"the schema has more than {MAX_PARTS} schemas and constants")

    def _new_rule(self, definition: str, path: Path) -> str:
        name = f"rule-{len(self._rules)}"
        self._define(name, definition, path)
        return name

    def _repeated(self, rule: str, least: int, most: int | None, path: Path) -> str:
        """Return the repetition of a rule. A rule is repeated and no group, because llama.cpp counts nested rules."""
        self._repetitions += least if most is None else most
        if self._repetitions > MAX_REPETITIONS:
            _refuse(path, f"the lengths of all strings and arrays add up to more than {MAX_REPETITIONS}")
        return f"{rule}*" if (least, most) == (0, None) else f"{rule}{{{least},{'' if most is None else most}}}"

    def _reference(self, pointer: str, path: Path, above: str) -> str:
        """Return the name of the rule of a reference. The rule is defined later, so references may be recursive."""
        name = self._references.get(pointer)
        if name is None:
            name = self._references[pointer] = f"ref-{len(self._references)}"
            place = (*SCHEMA_PATH, *pointer.split("/")[1:])
            try:
                self._pending.append((name, self._resolve(pointer), place))
            except LookupError as error:
                _refuse(path, str(error))
        self._first.setdefault(above, {}).setdefault(name, path)
        inside = self._inside.setdefault(self._owner, {})
        inside[name] = max(inside.get(name, (0, path)), (self._alike, path))
        return name

    def _resolve(self, pointer: str) -> Any:
        """Return the part of the schema to which a pointer refers. Raises ``LookupError`` if there is none."""
        found: Any = self._schema
        if pointer != "#" and not pointer.startswith("#/"):
            raise LookupError("only references into the schema itself are read, such as #/$defs/NAME")
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list | tuple) and _is_index(key, len(found)):
                found = found[int(key)]
            else:
                raise LookupError("the schema does not have what it refers to")
        return found

    def _refuse_left_recursion(self) -> None:
        """Refuse a reference that begins with itself, because no text would ever be decided."""
        finished: set[str] = set()
        for start in self._first:
            trail = [(start, iter(self._first[start].items()))]
            on_trail = {start}
            while trail:
                name, following = trail[-1]
                below, path = next(following, ("", ()))
                if not below:
                    finished.add(name)
                    on_trail.remove(name)
                    trail.pop()
                elif below in on_trail:
                    _refuse(path, "it refers to itself without an object or array between")
                elif below not in finished:
                    trail.append((below, iter(self._first.get(below, {}).items())))
                    on_trail.add(below)

    def _refuse_many_alike(self, root: str) -> None:
        """Refuse alternatives that multiply over references. Over a recursive reference, they do so without end."""
        alike = {root: 1}
        pending = [root]
        while pending:
            name = pending.pop()
            for below, (factor, path) in self._inside.get(name, {}).items():
                product = alike[name] * factor
                if product * self._most_alike.get(below, 1) > MAX_ALIKE:
                    _refuse(path, ALIKE)
                if product > alike.get(below, 0):
                    alike[below] = product
                    pending.append(below)

    def _referred(self, schema: Any) -> Any:
        """Return the schema to which a schema refers, over several references; a schema without ``$ref`` itself."""
        pointers: set[str] = set()
        while True:
            self._steps += 1
            if self._steps > MAX_STEPS:
                _refuse(SCHEMA_PATH, f"comparing the alternatives takes more than {MAX_STEPS} steps")
            pointer = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(pointer, str) or pointer in pointers:
                return schema
            pointers.add(pointer)
            try:
                schema = self._resolve(pointer)
            except LookupError:
                return schema  # refused when its expression is made

    # ---------------------------------------------------------------- expressions

    def _expression(self, schema: Any, path: Path, above: str) -> str:
        """Return the expression of a schema.

        ``above``: the rule of the reference whose text begins with the expression; empty if a character is before it.
        """
        self._count_part(path)
        if schema is True:
            return "value"
        if not isinstance(schema, Mapping):
            _refuse(path, "it must be an object")
        keys = schema.keys() - ANNOTATIONS
        if path == SCHEMA_PATH:
            keys -= {"$id"}
        if "$ref" in keys:
            _refuse_others(keys - {"$ref"}, path, "beside $ref")
            return self._reference(str(schema["$ref"]), (*path, "$ref"), above)
        if "anyOf" in keys:
            _refuse_others(keys - {"anyOf"}, path, "beside anyOf")
            return self._any_of(schema, (*path, "anyOf"), above)
        types = _types(schema, keys, path)
        if "const" in keys or "enum" in keys:
            return self._constants(schema, keys, types, path)
        _refuse_others(keys - {"type"}.union(*KEYWORDS.values()), path, "")
        if not types:
            return "value"
        return _any([self._typed(name, schema, path) for name in types])

    def _any_of(self, schema: Mapping[str, Any], path: Path, above: str) -> str:
        branches = _list(schema["anyOf"], path)
        outside = self._alike
        self._alike *= self._alternatives.count(schema)
        self._most_alike[self._owner] = max(self._alike, self._most_alike.get(self._owner, 1))
        if self._alike > MAX_ALIKE:
            _refuse(path, ALIKE)
        one = [self._expression(part, (*path, str(at)), above) for at, part in enumerate(branches)]
        self._alike = outside
        return _any(one)

    def _typed(self, name: str, schema: Mapping[str, Any], path: Path) -> str:
        if name == "object":
            return self._object(schema, path)
        if name == "array":
            return self._array(schema, path)
        if name == "string":
            return self._string(schema, path)
        return name

    def _constants(self, schema: Mapping[str, Any], keys: set[str], types: Sequence[str], path: Path) -> str:
        """Return the expression of the values of ``const`` or ``enum`` that have one of the types."""
        name = "const" if "const" in keys else "enum"
        _refuse_others(keys - {name, "type"}, path, f"beside {name}")
        values = [schema[name]] if name == "const" else _list(schema[name], (*path, name))
        of_type = [value for value in values if not types or any(_has_type(value, one) for one in types)]
        if not of_type:
            _refuse((*path, name), "no value has the type of the schema")
        return self._new_rule(" | ".join([self._constant(value, (*path, name)) for value in of_type]), (*path, name))

    def _constant(self, value: Any, path: Path) -> str:
        """Return the expression of one JSON value, with optional white space inside."""
        self._count_part(path)
        if isinstance(value, Mapping):
            pairs = [f'{_literal(str(name))} ":" ws {self._constant(one, path)}' for name, one in value.items()]
            return _enclosed("{", pairs, "}")
        if isinstance(value, list | tuple):
            return _enclosed("[", [self._constant(one, path) for one in value], "]")
        return _literal(value)

    def _string(self, schema: Mapping[str, Any], path: Path) -> str:
        least, most = _bounds(schema, "minLength", "maxLength", path)
        if (least, most) == (0, None):
            return "string"
        if most == 0:
            return r'"\"\""'
        return rf'"\"" {self._repeated("char", least, most, path)} "\""'

    def _array(self, schema: Mapping[str, Any], path: Path) -> str:
        least, most = _bounds(schema, "minItems", "maxItems", path)
        if most == 0:
            return '"[" ws "]"'
        item = self._expression(schema.get("items", True), (*path, "items"), "")
        item = self._new_rule(item, path)
        further = self._new_rule(f'"," ws {item}', path)
        fewest, greatest = max(least - 1, 0), None if most is None else most - 1
        items = item if greatest == 0 else f"{item} {self._repeated(further, fewest, greatest, path)}"
        return f'"[" ws {self._new_rule(items, path)}{"" if least else "?"} ws "]"'

    def _object(self, schema: Mapping[str, Any], path: Path) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            _refuse((*path, "properties"), "it must be an object")
        required = _list(schema["required"], (*path, "required"), may_be_empty=True) if "required" in schema else []
        if not all(isinstance(name, str) and name in properties for name in required):
            _refuse((*path, "required"), "it names a property that properties does not have")
        always = frozenset(required)
        others = schema.get("additionalProperties", True)
        if not properties:
            return self._map(others, (*path, "additionalProperties"))
        if not isinstance(others, bool) and others != {}:
            _refuse((*path, "additionalProperties"), "a schema is read only without properties")
        pairs = []
        for name, one in properties.items():
            value = self._expression(one, (*path, "properties", str(name)), "")
            pair = self._new_rule(f'{_literal(str(name))} ":" ws {value}', (*path, "properties", str(name)))
            pairs.append((pair, name in always))
        return f'"{{" ws {self._members(pairs, path)} ws "}}"'

    def _map(self, others: Any, path: Path) -> str:
        """Return the expression of an object without declared properties. ``others``: the schema of its values."""
        if others is False:
            return '"{" ws "}"'
        if others is True or others == {}:
            return "object"
        value = self._expression(others, path, "")
        pair = self._new_rule(f'string ":" ws {value}', path)
        return f'"{{" ws ( {pair} ( "," ws {pair} )* )? ws "}}"'

    def _members(self, pairs: Sequence[tuple[str, bool]], path: Path) -> str:
        """Return the expression of an object's pairs, in order. Each pair: its rule, and whether it is required."""
        rest = ""  # what may follow a pair
        beginnings: list[str] = []  # from each pair that may be the first one
        for at, (rule, required) in reversed(list(enumerate(pairs))):
            beginning = f"{rule} {rest}".rstrip()
            beginnings = [beginning] if required else [beginning, *beginnings]
            if at:
                follows = f'"," ws {rule}' if required else f'( "," ws {rule} )?'
                rest = self._new_rule(f"{follows} {rest}".rstrip(), path)
        needs_one = any(required for _, required in pairs)
        return _any(beginnings) if needs_one else f"( {' | '.join(beginnings)} )?"


# ---------------------------------------------------------------- values


def _any(alternatives: Sequence[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"( {' | '.join(alternatives)} )"


def _literal(value: Any) -> str:
    """Return the literal of a value's JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _enclosed(start: str, parts: Sequence[str], end: str) -> str:
    inside = ' "," ws '.join(parts)
    return f'"{start}" ws {inside} ws "{end}"' if parts else f'"{start}" ws "{end}"'


def _has_type(value: Any, name: str) -> bool:
    if name in ("number", "integer"):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole or (isinstance(value, float) and (name == "number" or value.is_integer()))
    kinds = {"object": Mapping, "array": list | tuple, "string": str, "boolean": bool, "null": type(None)}
    return isinstance(value, kinds[name])


# ---------------------------------------------------------------- reading keywords


def _types(schema: Mapping[str, Any], keys: Iterable[str], path: Path) -> list[str]:
    """Return the types of a schema. Without ``type``: those to which its keywords belong; empty if it has none."""
    if "type" not in schema:
        return [name for name, keywords in KEYWORDS.items() if not keywords.isdisjoint(keys)]
    declared = schema["type"]
    names = [declared] if isinstance(declared, str) else _list(declared, (*path, "type"))
    if not all(isinstance(name, str) and name in KEYWORDS for name in names):
        _refuse((*path, "type"), f"the types are {', '.join(KEYWORDS)}")
    return list(names)


def _bounds(schema: Mapping[str, Any], low: str, high: str, path: Path) -> tuple[int, int | None]:
    """Return the lower and upper limit of a length; None if there is no upper limit."""
    for name in (low, high):
        if name in schema and (type(schema[name]) is not int or not 0 <= schema[name] <= MAX_REPETITION):
            _refuse((*path, name), f"it must be a whole number from 0 to {MAX_REPETITION}")
    least, most = schema.get(low, 0), schema.get(high)
    if most is not None and most < least:
        _refuse((*path, high), f"it is below {low}")
    return least, most


def _list(value: Any, path: Path, *, may_be_empty: bool = False) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or (not value and not may_be_empty):
        _refuse(path, "it must be a list with at least one entry")
    return value


def _is_index(key: str, size: int) -> bool:
    """Return whether a part of a pointer is an index of a list with ``size`` entries."""
    return key.isdecimal() and len(key) < 10 and int(key) < size


def _refuse_others(keys: Iterable[str], path: Path, where: str) -> None:
    for name in sorted(keys):
        _refuse((*path, name), f"this keyword is not supported {where}".rstrip())


def _refuse(path: Path, reason: str) -> NoReturn:
    shown = ".".join([printable(part[:64]) for part in (path if len(path) <= 12 else (*path[:3], "…", *path[-8:]))])
    raise UnsupportedParameter(
        f"{shown} cannot be sent, because this model's engine takes a grammar instead of a JSON Schema: {reason}. "
        "Change the schema, or use a model whose engine takes a JSON Schema (engine: vllm, sglang or llamacpp)",
        param=shown,
    )
