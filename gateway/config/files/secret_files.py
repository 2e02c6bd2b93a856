"""Reading a secret from the environment variable or file that a reference names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.files.reader import Files, ProblemMaker
from gateway.config.schema.kinds import SecretReference
from gateway.config.schema.secrets import Secret

TOKEN_CHARACTERS = re.compile(r"[!-~]+")
"""The characters of a bearer token."""


def read_secret(reference: SecretReference, files: Files, env: Mapping[str, str], blame: ProblemMaker) -> Secret | None:
    """Return a secret; a failure becomes a problem that names the place, never the value."""
    if reference.where == "env":
        text = env.get(reference.name)
        if text is None:
            files.problems.append(blame(f"the environment has no variable {reference.name}: set it and start again"))
            return None
        source = f"the variable {reference.name}"
    else:
        data = files.read(files.home / reference.name, blame)
        if data is None:
            return None
        text = data.decode("latin-1")
        source = f"the file {reference.name}"
    # A file usually ends with a line break that does not belong to the secret.
    text = text.strip()
    if not TOKEN_CHARACTERS.fullmatch(text):
        what = "holds blanks or characters that cannot stand in a header" if text else "is empty"
        files.problems.append(blame(f"{source} {what}: it must hold the key and nothing else"))
        return None
    return Secret(text)
