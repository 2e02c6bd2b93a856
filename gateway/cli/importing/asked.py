"""What did a person ask ``gateway import`` for? The words of the command line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of a command line."""

    source: Path
    kind: str
    name: str | None
    out: str | None
    force: bool
    model: str | None
    form: str
    without: tuple[str, ...]
    marks_of: str
    turns: str
    variant: str | None = None

    @property
    def wanted(self) -> str | None:
        """The name that a person gave, by itself or as that of the file."""
        if self.name is not None or self.out is None or self.out == STDOUT or self.into_folder:
            return self.name
        return Path(self.out).stem

    @property
    def into_folder(self) -> bool:
        """Is ``out`` a folder?"""
        return self.out is not None and (self.out.endswith(("/", os.sep)) or Path(self.out).is_dir())


def as_name(text: str) -> str:
    """A name as files have it."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:64] or "imported"
