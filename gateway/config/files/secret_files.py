"""How is a secret fetched? From the variable or the file that a reference names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.files.reader import Blame, Files
from gateway.config.schema.kinds import SecretReference
from gateway.config.schema.secrets import Secret

GRAPHIC = re.compile(r"[!-~]+")
"""What a bearer token may consist of."""


def resolve(reference: SecretReference, files: Files, env: Mapping[str, str], blame: Blame) -> Secret | None:
    """Fetch a secret; what is wrong becomes a problem that names the place and never the value."""
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
    # A file usually ends in a line break that is no part of the secret.
    text = text.strip()
    if not GRAPHIC.fullmatch(text):
        what = "holds blanks or characters that cannot stand in a header" if text else "is empty"
        files.problems.append(blame(f"{source} {what}: it must hold the key and nothing else"))
        return None
    return Secret(text)
