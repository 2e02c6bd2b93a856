"""The tensors of a folder's ``model.safetensors``.

The format: eight bytes of header length, a JSON header, the raw tensors. The file is memory-mapped; a tensor becomes
float32 when it is taken (bfloat16 is the upper half of float32, so that conversion is exact).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import ConfigError, Problem

Array = NDArray[np.float32]

FILE = "model.safetensors"
MAX_HEADER = 100 * 1024 * 1024
"""Bytes; the limit of the format's own reference reader."""


def _from_bf16(raw: NDArray[Any]) -> Array:
    return (raw.astype(np.uint32) << 16).view(np.float32)


STORED: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
DERIVED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
"""Tables that some exporters wrote although they follow from config.json."""


@dataclass(frozen=True, slots=True)
class _TensorLocation:
    """One tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Byte offset in the file."""


class Weights:
    """The tensors of one model folder, taken by name, each once."""

    def __init__(self, folder: Path) -> None:
        """Raises ``ConfigError`` if the file is missing, incomplete or not safetensors."""
        self._file = folder / FILE
        if not self._file.is_file():
            raise _config_error(
                self._file, "missing; save_pretrained with a large max_shard_size writes all weights into this one file"
            )
        self._places = _header(self._file)

    def take(self, name: str, *shape: int) -> Array:
        """The tensor ``name`` as float32; raises ``ConfigError`` if it has not the given shape."""
        place = self._places.pop(name, None)
        if place is None:
            raise _config_error(
                self._file, f"has no tensor {name}, which config.json requires; the folder is incomplete"
            )
        if place.shape != shape:
            raise _config_error(self._file, f"{name} has shape {list(place.shape)}, config.json requires {list(shape)}")
        raw = np.asarray(np.memmap(self._file, STORED[place.dtype], "r", place.start, shape))
        # Aligned, because matrix products copy a matrix at an unaligned address each time.
        return _from_bf16(raw) if place.dtype == "BF16" else np.require(raw, np.float32, "A")

    def drop(self, name: str) -> None:
        """Forget a tensor that repeats another one."""
        self._places.pop(name, None)

    def finish(self) -> None:
        """Raise ``ConfigError`` if tensors were not taken: the model would not be the one that was trained."""
        left = sorted(name for name in self._places if not name.endswith(DERIVED))
        if left:
            shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise _config_error(self._file, f"holds weights that its config.json does not describe ({shown}); "
                                         "serve it with vLLM or llama.cpp and use speaks: completions")  # fmt: skip


def _config_error(file: Path, message: str) -> ConfigError:
    return ConfigError((Problem(file=str(file), line=0, key="", message=message),))


def _header(file: Path) -> dict[str, _TensorLocation]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = file.stat().st_size
            if not 0 < length <= min(MAX_HEADER, size):
                raise ValueError("header length")
            head = json.loads(stream.read(length))
        return {name: _place(entry, 8 + length, size) for name, entry in head.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _config_error(file, f"is not a whole safetensors file ({error}); copy it again") from None


def _place(entry: Mapping[str, Any], base: int, size: int) -> _TensorLocation:
    dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in STORED:
        raise ValueError(f"tensors of type {dtype} are not supported, only {', '.join(STORED)}")
    if end - start != math.prod(shape) * STORED[dtype].itemsize or start < 0 or base + end > size:
        raise ValueError("a tensor does not lie inside the file")
    return _TensorLocation(dtype, shape, base + start)
