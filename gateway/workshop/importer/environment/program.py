"""Loads configs with mmengine, and writes one line of JSON for each. The Python of another environment runs this file.

The arguments are the limit of memory in bytes, and the paths of the configs. A line has the key ``names`` with the
values of the config, ``error`` with the reason why there are none, or ``missing`` with the reason why mmengine cannot
be imported. A mapping of the config is written as its ``keys`` and ``values``; a class, function or imported name as
its full ``name``; any other object as ``object`` with its class. Runs on Python 3.8 and later, and needs only the
standard library and mmengine.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MAX_INTEGER = 2**63
MAX_REASON = 500
"""Maximum length of the reason why a config has no values."""


def plain(value: object) -> object:
    """Return a value in its form for JSON. Raises ``RecursionError`` for values that contain themselves."""
    if isinstance(value, dict):
        # The methods of mmengine's mappings import the classes that the config names; those of dict do not.
        keys = list(dict.keys(value))
        if all(isinstance(key, (str, int)) for key in keys):
            return {"keys": keys, "values": [plain(one) for one in dict.values(value)]}
        return {"object": "dict with keys that are not texts"}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    is_scalar = (
        value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < MAX_INTEGER)
    )
    return value if is_scalar else described(value)


def described(value: Any) -> dict[str, str]:
    """Return the full name of a class, function or imported name; of any other object the full name of its class."""
    owner = type(value)
    if owner.__module__ == "mmengine.config.lazy":
        imported = value._imported if owner.__name__ == "LazyObject" else value.name
        return {"name": ".".join([one for one in (value.module, imported) if one])}
    if isinstance(getattr(value, "__qualname__", None), str):
        return {"name": ".".join([one for one in (value.__module__, value.__qualname__) if one])}
    return {"object": f"{owner.__module__}.{owner.__qualname__}"}


def line_of(path: str) -> str:
    """Return the line of a config. Raises what importing mmengine raises."""
    from mmengine.config import Config

    try:
        config = Config.fromfile(path)
        values = config._to_lazy_dict() if hasattr(config, "_to_lazy_dict") else config._cfg_dict.to_dict()
        return json.dumps({"names": plain(values)})
    except MemoryError:
        return json.dumps({"error": "it needs too much memory"})
    except RecursionError:
        return json.dumps({"error": "its values are nested too deeply, or contain themselves"})
    except BaseException as error:  # SystemExit too: the config is a stranger's code
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:MAX_REASON]})


def limit_memory(size: int) -> None:
    """Limit the memory that this process may write to. The code of libraries does not count."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def main() -> None:
    """Write a line for each config. What the configs print is thrown away."""
    sys.path[0] = os.getcwd()  # as in `python -c`; it was the folder of this file
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    limit_memory(int(sys.argv[1]))
    for path in sys.argv[2:]:
        try:
            line = line_of(path)
        except Exception as error:
            line = json.dumps({"missing": str(error)[:MAX_REASON]})
        out.write(line + "\n")
        out.flush()
    os._exit(0)  # without waiting for threads of the configs


if __name__ == "__main__":
    main()
