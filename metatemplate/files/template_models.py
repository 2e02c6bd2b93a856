"""The models that a template is for, as the comment ``For:`` and the key ``for`` of its file name them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from metatemplate.files import yaml
from metatemplate.values.words import listed

MAX_SIMILAR = 5
"""The maximum number of similar templates that a message lists."""
MIN_WORD = 3
"""The minimum number of letters and digits of a name that is compared."""
HELP = (
    "gateway templates lists all templates with their models; "
    "gateway import FOLDER converts the chat template in a model's own folder"
)
_FOR = re.compile(r"^# For:(.*(?:\n#  .*)*)", re.MULTILINE)
_RELEASES = re.compile(r" \([^()]*\d\.\d[^()]*\)")
"""The releases of the program from which a template was taken."""


def models_of(text: str) -> list[str]:
    """Return the entries of the comment ``For:``, without releases. ``text``: the contents of a template file."""
    found = _FOR.search(text)
    lines = found[1].split("\n#") if found is not None else []
    return [_RELEASES.sub("", line).strip().rstrip(".") for line in lines if line.strip()]


def patterns_of(path: Path) -> list[str]:
    """Return the key ``for`` of a template file: patterns of model names, such as ``my-chat-*``."""
    value = yaml.parse(path.read_bytes(), path.name).value
    found = value.get("for", ()) if isinstance(value, dict) else ()
    return [found] if isinstance(found, str) else list(found)


def made_for(model: str, templates: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the templates with a pattern for the last part of a model's name. ``templates``: name → patterns."""
    word = model.lower().rpartition("/")[2]
    return [name for name, patterns in templates.items() if any(fnmatchcase(word, one.lower()) for one in patterns)]


def named_in(model: str, templates: Iterable[str]) -> list[str]:
    """Return the templates whose name, without ``lazyllm-``, is a part of a model's name, longest first.

    The organisation before a slash is ignored, because the models of one organisation have different templates.
    """
    word = model.lower().rpartition("/")[2]
    found = [
        name
        for name in templates
        if re.search(rf"(?<![a-z0-9]){re.escape(name.removeprefix('lazyllm-'))}(?![a-z0-9])", word)
    ]
    return sorted(found, key=lambda name: (-len(name.removeprefix("lazyllm-")), name))


def similar_templates(word: str, files: Iterable[Path]) -> list[str]:
    """Return templates that a wrong name may mean, the most similar first.

    First those with the word in their name, then those with it in their models, then those of ``named_in``.
    Only letters and digits are compared: ``Ab-3`` is similar to a template for ``my-ab3-chat``.
    """
    wanted, paths = _squash(word), sorted([path for path in files if path.is_file() and os.access(path, os.R_OK)])
    if len(wanted) < MIN_WORD:
        return []
    found = [path.stem for path in paths if wanted in _squash(path.stem)]
    for path in paths:
        if wanted in _squash(" ".join(models_of(path.read_text(encoding="utf-8", errors="replace")))):
            found.append(path.stem)
    found += named_in(word, [path.stem for path in paths])
    return list(dict.fromkeys(found))[:MAX_SIMILAR]


def help_for(word: str, files: Iterable[Path]) -> str:
    """Return the end of the message for a name that no template has: similar templates, and where to look further."""
    similar = similar_templates(word, files)
    return (f"; similar: {listed(similar)}" if similar else "") + f"; {HELP}"


def _squash(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
