"""Checks the roles and the other keys of template files of ``kind: meta``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metatemplate.files.file_types import file_type
from metatemplate.files.problems import Problems
from metatemplate.templates.roles import SYSTEM, role_names
from metatemplate.templates.spec import RoleSpec, TemplateSpec
from metatemplate.values.json_values import KeyPath
from metatemplate.values.kinds import Texts
from metatemplate.values.words import shown, suggest

META_KEYS = (
    "kind",
    "description",
    "stop",
    "eos_token_id",
    "examples",
    "begin",
    "end",
    "round",
    "reserved_roles",
    "roles",
    "bos",
    "bos_text",
    "turns",
    "media",
    "tools",
    "thinking",
    "markers",
    "for",
)
META_FILE = file_type("meta", META_KEYS, TemplateSpec, begin=Any, **{"for": Texts})  # `begin` depends on the roles
API_BEGIN = file_type("begin", ("role", "prompt"), role=Any, prompt=str)
SCORES_ONLY = (
    "no role has generate: true, so the template only scores complete conversations; for answers, add it to the role "
    "of the model's answer"
)
"""The note about a template without a generating role."""

Placed = list[tuple[KeyPath, RoleSpec]]
"""The roles of a file, each with the path of keys in the file."""


def read_meta(keys: Mapping[str, Any], spec: TemplateSpec, problems: Problems, *, generates: bool) -> TemplateSpec:
    """Check the keys of ``kind: meta`` and return the spec with ``begin``. Mistakes are added to ``problems``.

    ``generates``: False if ``round`` may be missing, because the template only renders complete conversations.
    """
    if "round" not in keys and generates:
        problems.add((), "`round` is missing: list the roles of a turn, such as {role: HUMAN, begin: …, end: …}")
    if keys.get("round") == () and not problems.found:
        problems.add(("round",), "is empty: list at least the role of the user and the role of the assistant")
    placed: Placed = [
        ((key, number), role)
        for key, entries in (("round", spec.round), ("reserved_roles", spec.reserved_roles))
        for number, role in enumerate(entries)
        if isinstance(role, RoleSpec)
    ]
    makes_messages = any(role.api_role is not None for _, role in placed)
    if makes_messages:
        _check_api(spec, placed, problems)
    spec = replace(spec, begin=_begin(keys.get("begin", ""), problems, makes_messages=makes_messages))
    check_bos(spec, spec.begin, "begin", problems)
    _check_roles(placed, problems)
    _check_generating(spec, placed, problems)
    _check_mappings(spec, [role.role for _, role in placed], problems)
    return spec


def _begin(begin: Any, problems: Problems, *, makes_messages: bool) -> str:
    """Return the text of ``begin``. As in OpenCompass, an API model may also have ``{role: SYSTEM, prompt: …}``."""
    if not makes_messages or not isinstance(begin, Mapping):
        return str(problems.read(str, begin, ("begin",)))
    given = problems.read(API_BEGIN, begin, ("begin",))
    if given.get("role") != SYSTEM:
        problems.add(("begin", "role"), "must be SYSTEM: the begin of an API template is a system message")
    return str(given.get("prompt", ""))


def check_bos(spec: TemplateSpec, text: str, key: str, problems: Problems) -> None:
    """Check ``bos`` and ``bos_text`` against ``text``, the beginning of every prompt. ``key``: the key of this text."""
    if spec.bos != "text":
        if spec.bos_text:
            problems.add(("bos_text",), "applies only to bos: text; set bos to text or remove bos_text")
    elif not spec.bos_text:
        problems.add(("bos",), f"bos: text needs bos_text, the marker that `{key}` starts with")
    elif not text.startswith(spec.bos_text):
        problems.add(
            ("bos_text",), f"must be the start of `{key}`: write {shown(spec.bos_text)} at the start of `{key}`"
        )


def _check_api(spec: TemplateSpec, placed: Placed, problems: Problems) -> None:
    for path, role in placed:
        if role.api_role is None:
            problems.add(
                path, f"role {shown(role.role)} has no api_role, but other roles have: set it in all roles or in none"
            )
    for number, entry in enumerate(spec.round):
        if isinstance(entry, str):
            problems.add(("round", number), "a bare text has no role and cannot become a message; remove the text")


def _check_roles(placed: Placed, problems: Problems) -> None:
    """Check that role names are unique, that named roles exist, and that no reserved role has ``generate``."""
    names = [role.role for _, role in placed]
    for number, (path, role) in enumerate(placed):
        if role.role and role.role in names[:number]:
            problems.add((*path, "role"), f"role {shown(role.role)} is defined twice: use each name once in the file")
        if role.fallback_role is not None and role.fallback_role not in names:
            problems.add(
                (*path, "fallback_role"),
                f"this template has no role {shown(role.fallback_role)}{suggest(role.fallback_role, names)}",
            )
        if role.generate and path[0] == "reserved_roles":
            problems.add(
                (*path, "generate"), "a reserved role cannot have the key `generate`; move the role into `round`"
            )


def _check_generating(spec: TemplateSpec, placed: Placed, problems: Problems) -> None:
    """Check that at most one role of the round has ``generate``. Without one, the template is only for scoring."""
    generating = [(path, role) for path, role in placed if path[0] == "round" and role.generate]
    if not generating and spec.tools is not None:
        problems.add(("tools",), "needs a role with generate: true; add it to the role of the model's answer")
    for path, _ in generating[1:]:
        problems.add(
            (*path, "generate"),
            f"only one role may have generate, and the role {shown(generating[0][1].role)} has it: remove this key",
        )


def _check_mappings(spec: TemplateSpec, names: list[str], problems: Problems) -> None:
    """Check that users and assistants have template roles, and that the roles in ``roles`` exist."""
    for openai_role, wanted in spec.roles.items():
        if wanted and wanted not in names:
            problems.add(("roles", openai_role), f"this template has no role {shown(wanted)}{suggest(wanted, names)}")
    for openai_role in ("user", "assistant"):
        wanted = role_names(spec)[openai_role]
        if names and wanted not in names and openai_role not in spec.roles:
            problems.add(
                ("round",),
                f"no role writes {openai_role} messages: add a role {wanted}, "
                f"or map another role under `roles: {{{openai_role}: …}}`",
            )
