"""The models loaded into this process.

Targets with the same folder share an engine, also across a reload. The cache alone keeps no model in memory: when the
last backend that uses a model is gone, the model's memory is freed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from gateway.config.snapshot import TargetSpec
from gateway.core.errors import ConfigError, Problem, as_gateway_error
from metatemplate.errors import InvalidFile

if TYPE_CHECKING:
    from gateway.backend.embedded.engine import EmbeddedEngine

READ = ("*.json", "*.safetensors")
_Key = tuple[Path, int | None, tuple[tuple[str, int, int], ...]]


class EngineCache:
    """The loaded engines, by folder, context length and state of the files."""

    def __init__(self) -> None:
        self._engines: WeakValueDictionary[_Key, EmbeddedEngine] = WeakValueDictionary()
        self._loading = threading.Lock()

    def get(self, target: TargetSpec) -> EmbeddedEngine:
        """Return the engine for a target's folder. Loading a new engine blocks.

        Raises ``ConfigError`` for problems of the folder, the options or the installed packages.
        """
        assert target.path is not None, "config requires path"
        length = _configured_length(target)
        # Name, size and modification time of each file that is read.
        files = sorted(file for pattern in READ for file in target.path.glob(pattern))
        state = tuple((file.name, stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])
        key = (target.path.resolve(), length, state)
        with self._loading, _refused(target.path):
            engine = self._engines.get(key)
            if engine is None:
                # numpy and tokenizers are slow to import: only an embedded target needs them.
                from gateway.backend.embedded.engine import EmbeddedEngine

                engine = self._engines[key] = EmbeddedEngine(target.path, length)
            return engine


def context_length(target: TargetSpec) -> int:
    """Return the context length of an embedded target in tokens, without loading its model. Raises ``ConfigError``."""
    assert target.path is not None, "config requires path"
    length = _configured_length(target)
    with _refused(target.path):
        from gateway.backend.embedded.model_folder import read_config  # numpy is slow to import

        return read_config(target.path, length).max_position_embeddings


def _configured_length(target: TargetSpec) -> int | None:
    length = target.options.get("max_model_len")
    if length is not None and (type(length) is not int or length < 1):
        raise ConfigError((Problem(target.label, 0, "options.max_model_len", "must be a whole number above 0"),))
    return length


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    """Raise ``ConfigError`` for problems of a model's folder."""
    try:
        yield
    except InvalidFile as error:
        raise as_gateway_error(error) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError((Problem(str(folder), 0, "", f"cannot be loaded: {error}"),)) from error
