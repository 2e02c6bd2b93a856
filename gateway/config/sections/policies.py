"""Reads policy files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from gateway.config.schema.settings import POLICY
from gateway.config.schema.validation import check
from gateway.config.sections.parameters import check_params
from gateway.config.snapshot import MediaPolicy, PolicySpec
from metatemplate.files.reader import AddProblem, Files, digest
from metatemplate.files.yaml import YamlDocument


def read_policy(files: Files, path: Path, name: str, add_problem: AddProblem) -> PolicySpec | None:
    """Return the policy of a file, or None if the file has problems."""
    before = len(files.problems)
    document = files.document(path, add_problem)
    if document is None:
        return None
    policy: PolicySpec = check(document, POLICY)
    check_params(document, policy.params)
    timeout = policy.delivery.timeout
    for clock in ("connect", "first_token", "idle"):
        where = ("delivery", "timeout", clock)
        seconds, total = getattr(timeout, clock), timeout.total
        if document.has(where) and seconds and total and seconds > total:
            document.refuse(where, f"has no effect, because it is longer than total ({total:g}s); make it shorter")
    if policy.cache.coalesce and policy.cache.mode in ("off", "read_only", "write_only"):
        document.refuse(("cache", "coalesce"), "has no effect without cache.mode: on; set both, or remove this one")
    if document.has(("cache", "ttl")) and not document.has(("cache", "mode")) and policy.reasoning == "off":
        files.notes.append(document.problem(("cache", "ttl"), "has no effect without cache.mode; write `mode: on` too"))
    folders = _media_folders(files, document, policy.media)
    if len(files.problems) > before:
        return None
    own = digest(files.contents[path] or b"")[:12]
    return replace(policy, name=name, digest=own, media=replace(policy.media, folders=folders))


def _media_folders(files: Files, document: YamlDocument, media: MediaPolicy) -> tuple[Path, ...]:
    """Return the folders of ``media.folders``, and add a problem for each one that is not a folder."""
    names = media.folders or ()
    folders = tuple([files.home / name for name in names])
    for number, folder in enumerate(folders):
        if not os.path.isdir(folder):
            files.looked_at[folder] = None
            message = f"no folder {names[number]}; the path is relative to the folder of gateway.yaml"
            document.refuse(("media", "folders", number), message)
    if media.file in ("pass", "inline") and media.folders == ():
        message = "needs media.folders; name the folders whose files may be sent, such as folders: [/data/images]"
        document.refuse(("media", "file"), message)
    return folders
