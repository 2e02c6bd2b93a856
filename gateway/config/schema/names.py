"""Rules for names."""

from __future__ import annotations

import re

FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""The allowed names of templates and policies. A name is used as a file name, so it cannot contain a path."""

MODEL_NAME = re.compile(r"[!-~]{1,128}")
"""The allowed names of models: printable ASCII, because headers, URL paths and metric labels contain the name."""

KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The allowed names of client keys, which appear in logs."""
