"""Random JSON Schemas."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("a", "name", 'quo"te', "back\\slash", "größe", "new\nline", "x/y~z", "😀", "")
VALUES: tuple[Any, ...] = ("x", 'ä\t"', "", 0, -7, 2.5, True, False, None, [1, [], {"k": "v"}], {"k": [None], "l": {}})


class RandomSchema:
    """A random schema of all supported keywords. The definition ``node`` is recursive."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.schema: dict[str, Any] = {
            **self.mapping(0),
            "$defs": {"node": self.node(), "leaf": self.plain(2), "a/b~c d": {"type": "integer", "title": "T"}},
        }

    def node(self) -> dict[str, Any]:
        below = self.rng.choice(
            [
                {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                {"type": "array", "items": {"$ref": "#"}, "maxItems": 1},
            ]
        )
        return {"type": "object", "properties": {"below": below, "value": self.part(2)}, "required": ["below"]}

    def part(self, depth: int) -> Any:
        draw = self.rng.random()
        if draw < 0.1:
            return {"$ref": self.rng.choice(["#/$defs/node", "#/$defs/leaf", "#/$defs/a~1b~0c%20d"]), "title": "T"}
        if draw < 0.2:
            return {"anyOf": [self.plain(depth + 1) for _ in range(self.rng.randint(1, 3))], "description": "D"}
        return self.plain(depth)

    def plain(self, depth: int) -> Any:
        kinds = ["string", "number", "integer", "boolean", "null", "enum", "const", "types", "any", "map"]
        match self.rng.choice([*kinds, *(["object", "object", "array", "array"] if depth < 3 else [])]):
            case "enum":
                return {"enum": self.rng.sample(VALUES, self.rng.randint(1, 4))}
            case "const":
                return {"const": self.rng.choice(VALUES)}
            case "types":
                return {"type": self.rng.sample(["string", "null", "integer", "boolean"], 2), **self.lengths("Length")}
            case "any":
                return self.rng.choice([{}, True, {"description": "anything"}])
            case "map":
                return {"type": "object", **({"additionalProperties": self.part(3)} if self.rng.random() < 0.7 else {})}
            case "object":
                return self.mapping(depth + 1)
            case "array":
                return {"type": "array", "items": self.part(depth + 1), **self.lengths("Items")}
            case "string":
                return {"type": "string", "default": "", **self.lengths("Length")}
            case kind:
                return {"type": kind}

    def mapping(self, depth: int) -> dict[str, Any]:
        names = self.rng.sample(NAMES, self.rng.randint(0, 4))
        return {
            "type": "object",
            "properties": {name: self.part(depth) for name in names},
            "required": [name for name in names if self.rng.random() < 0.5],
            **({"additionalProperties": False} if self.rng.random() < 0.5 else {}),
        }

    def lengths(self, of: str) -> dict[str, int]:
        least = self.rng.randint(0, 2)
        bounds = {f"min{of}": least, f"max{of}": least + self.rng.randint(0, 3)}
        return {name: bounds[name] for name in bounds if self.rng.random() < 0.5}
