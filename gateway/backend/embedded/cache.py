"""Which models are loaded? Each folder once, for as long as somebody uses it.

Two targets with the same folder share an engine, and so do the worlds before and after a reload.
The cache itself keeps nothing alive: when the last backend lets go, the model's memory is freed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gateway.backend.embedded.options import read_options
from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import Engine

READ = ("*.json", "*.safetensors")
_Key = tuple[Path, int | None, tuple[tuple[str, int, int], ...]]


class EngineCache:
    """Hands out engines. Whoever builds backends owns one, and keeps it across reloads."""

    def __init__(self) -> None:
        self._engines: WeakValueDictionary[_Key, Engine] = WeakValueDictionary()
        self._loading = threading.Lock()

    def get(self, target: TargetSpec) -> Engine:
        """The engine of a target's folder; loads it when nobody uses it yet, which blocks.

        Raises ``ConfigError`` when the folder, the options or the installed packages do not do.
        """
        if target.path is None:
            raise _refusal(target, "path", "speaks: embedded needs the path of a model folder")
        length = read_options(target).max_model_len
        key = (target.path.resolve(), length, _fingerprint(target.path))
        with self._loading:
            engine = self._engines.get(key)
            if engine is None:
                engine = self._engines[key] = _load(target, target.path, length)
            return engine


def _load(target: TargetSpec, folder: Path, max_model_len: int | None) -> Engine:
    # numpy and tokenizers are an extra, and slow to import: only an embedded target pays for them.
    try:
        from gateway.backend.embedded.engine import Engine
    except ModuleNotFoundError as error:
        hint = f"speaks: embedded needs the package {error.name}: pip install 'meta-gateway[embedded]'"
        raise _refusal(target, "speaks", hint) from None
    return Engine(folder, max_model_len)


def _fingerprint(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and change time of each file that is read: an exchanged model is another model."""
    files = sorted(file for pattern in READ for file in folder.glob(pattern))
    return tuple((file.name, stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])


def _refusal(target: TargetSpec, key: str, message: str) -> ConfigError:
    return ConfigError((Problem(target.label, 0, key, message),))
