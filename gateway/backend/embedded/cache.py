"""The models loaded into this process.

Targets with the same folder share an engine, also across a reload. The cache keeps no model in memory: when the last
backend that uses it is gone, its memory is freed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gateway.backend.embedded.request import read_options
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import Engine

READ = ("*.json", "*.safetensors")
_Key = tuple[Path, int | None, tuple[tuple[str, int, int], ...]]


class EngineCache:
    """Engines by folder, context length and state of the files."""

    def __init__(self) -> None:
        self._engines: WeakValueDictionary[_Key, Engine] = WeakValueDictionary()
        self._loading = threading.Lock()

    def get(self, target: TargetSpec) -> Engine:
        """The engine of a target's folder; loading one blocks.

        Raises ``ConfigError`` for problems of the folder, the options or the installed packages.
        """
        if target.path is None:
            raise _config_error(target, "path", "speaks: embedded needs the path of a model folder")
        length = read_options(target).max_model_len
        key = (target.path.resolve(), length, _fingerprint(target.path))
        with self._loading:
            engine = self._engines.get(key)
            if engine is None:
                engine = self._engines[key] = _load(target, target.path, length)
            return engine


def _load(target: TargetSpec, folder: Path, max_model_len: int | None) -> Engine:
    # numpy and tokenizers are optional and slow to import: only an embedded target needs them.
    try:
        from gateway.backend.embedded.engine import Engine
    except ModuleNotFoundError as error:
        hint = f"speaks: embedded needs the package {error.name}: pip install 'meta-gateway[embedded]'"
        raise _config_error(target, "speaks", hint) from None
    return Engine(folder, max_model_len)


def _fingerprint(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time of each file that is read."""
    files = sorted(file for pattern in READ for file in folder.glob(pattern))
    return tuple((file.name, stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])


def _config_error(target: TargetSpec, key: str, message: str) -> ConfigError:
    return ConfigError((Problem(target.label, 0, key, message),))
