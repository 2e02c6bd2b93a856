"""Rules for names."""

from __future__ import annotations

import re

FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""The names of templates and policies. Such a name is a file name and cannot lead out of the folder."""

MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""The names of models: printable ASCII, because headers, URL paths and metric labels contain the name."""

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The names of client keys, which appear in logs."""
