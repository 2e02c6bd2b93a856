"""Makes random JSON values that a schema accepts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema

LETTERS = 'abcXYZ019 _-äß字😀"\\\n\t/'
DEPTH = 4
"""The depth of references from which values are made as small as possible."""
FORMATS = {
    "date": "2027-06-30",
    "date-time": "2027-06-30T12:00:00Z",
    "email": "ada@example.com",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}


def valid_instance(schema: Any, rng: random.Random) -> Any:
    """Return a random value that the schema accepts. Raises ``ValueError`` if twenty attempts find none."""
    validator = jsonschema.Draft202012Validator(schema)
    for _ in range(20):
        value = _Maker(schema, rng).make(schema, 0)
        if validator.is_valid(value):
            return value
    raise ValueError(f"no instance found for {schema}")


class _Maker:
    """Makes the parts of one value."""

    def __init__(self, root: Any, rng: random.Random) -> None:
        self.root, self.rng = root, rng

    def make(self, schema: Any, depth: int) -> Any:
        if schema is True or not schema:
            return self.rng.choice([None, True, 7, "free", [1], {"free": 2.5}])
        if "$ref" in schema:
            return self.make(self.resolved(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                ends = [part for part in schema[name] if not self.goes_on(part)]
                branch = self.rng.choice(ends if ends and depth >= DEPTH else schema[name])
                return self.make(
                    {
                        **{key: schema[key] for key in schema if key != name},
                        **(branch if isinstance(branch, dict) else {}),
                    },
                    depth,
                )
        if "allOf" in schema:
            merged = {key: schema[key] for key in schema if key != "allOf"}
            for part in schema["allOf"]:
                merged |= self.resolved(part["$ref"]) if "$ref" in part else part
            return self.make(merged, depth)
        return self.typed(schema, depth)

    def typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        likely = "object" if "properties" in schema else "array" if "items" in schema else "string"
        kinds = schema.get("type", likely)
        kind = kinds if isinstance(kinds, str) else self.rng.choice(kinds)
        match kind:
            case "object":
                return self.mapping(schema, depth)
            case "array":
                return self.list(schema, depth)
            case "string":
                return self.text(schema)
            case "integer":
                return self.number(schema)
            case "number":
                return self.number(schema) if self.rng.random() < 0.5 else self.number(schema) + 0.25
            case "boolean":
                return self.rng.random() < 0.5
        return None

    def mapping(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        value = {
            name: self.make(part, depth)
            for name, part in schema.get("properties", {}).items()
            if name in required or (depth < DEPTH and self.rng.random() < 0.5)
        }
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and depth < DEPTH:
            value |= {f"k{number}": self.make(others, depth + 1) for number in range(self.rng.randint(0, 2))}
        return value

    def list(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 4)
        first = [self.make(part, depth + 1) for part in schema.get("prefixItems", ())]
        size = least if depth >= DEPTH else self.rng.randint(least, max(least, min(most, least + 3)))
        return first + [self.make(schema.get("items", True), depth + 1) for _ in range(size - len(first))]

    def text(self, schema: Mapping[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        least, most = schema.get("minLength", 0), schema.get("maxLength", 12)
        size = self.rng.randint(least, max(least, min(most, least + 12)))
        return "".join(self.rng.choice(LETTERS) for _ in range(size))

    def number(self, schema: Mapping[str, Any]) -> int:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1000) + 1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", max(1000, low + 1000)) - 1)
        step = schema.get("multipleOf", 1)
        return int(self.rng.randint(int(low), int(max(low, high))) // step * step)

    def resolved(self, pointer: str) -> Any:
        found = self.root
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    def goes_on(self, part: Any) -> bool:
        return isinstance(part, dict) and ("$ref" in part or part.get("type") in ("object", "array"))
