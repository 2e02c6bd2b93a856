"""The roles of a template file, each one and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gateway.template.roles import role_names
from gateway.template.spec.template import RoleSpec, TemplateSpec
from gateway.template.validation.problems import Path, Problems, kind_of, shown, suggestion

NEEDED_ROLES = ("user", "assistant")


def read_round(keys: Mapping[str, Any], problems: Problems) -> tuple[RoleSpec | str, ...]:
    """The roles and texts of ``round``."""
    if "round" not in keys:
        problems.add((), "`round` is missing: list the roles of a turn, such as {role: HUMAN, begin: …, end: …}")
        return ()
    entries = problems.items(keys["round"], ("round",))
    if isinstance(keys["round"], list) and not entries:
        problems.add(("round",), "is empty: list at least the role of the user and the role of the assistant")
    return tuple(
        entry if isinstance(entry, str) else _role(entry, ("round", number), problems)
        for number, entry in enumerate(entries)
    )


def read_reserved(keys: Mapping[str, Any], problems: Problems) -> tuple[RoleSpec, ...]:
    """The roles of ``reserved_roles``."""
    roles: list[RoleSpec] = []
    for number, entry in enumerate(problems.items(keys.get("reserved_roles", ()), ("reserved_roles",))):
        path: Path = ("reserved_roles", number)
        if isinstance(entry, str):
            problems.add(path, "a reserved role must be a mapping; text is not allowed here")
            continue
        role = _role(entry, path, problems)
        if role.generate:
            problems.add((*path, "generate"), "a reserved role cannot generate; move it into `round`")
        roles.append(role)
    return tuple(roles)


def _role(value: Any, path: Path, problems: Problems) -> RoleSpec:
    if not isinstance(value, Mapping):
        problems.add(path, f"must be a role or a text, not {kind_of(value)}")
        return RoleSpec("")
    role = problems.record(RoleSpec, value, path)
    if value.get("role") == "":
        problems.add((*path, "role"), "must not be empty: name it, for example HUMAN, BOT or SYSTEM")
    return role


def _placed(round_: tuple[RoleSpec | str, ...], reserved: tuple[RoleSpec, ...]) -> list[tuple[Path, RoleSpec]]:
    """Every role with its path in the file."""
    entries = [
        *(("round", i, role) for i, role in enumerate(round_)),
        *(("reserved_roles", i, role) for i, role in enumerate(reserved)),
    ]
    return [((key, number), role) for key, number, role in entries if isinstance(role, RoleSpec)]


def is_api(round_: tuple[RoleSpec | str, ...], reserved: tuple[RoleSpec, ...], problems: Problems) -> bool:
    """True if the roles have ``api_role``. Adds a problem for each role without it, if others have it."""
    placed = _placed(round_, reserved)
    without = [(path, role) for path, role in placed if role.api_role is None]
    if len(without) == len(placed):
        return False
    for path, role in without:
        problems.add(path, f"role {shown(role.role)} has no api_role, but others do: give one to every role or to none")
    return True


def check_roles(spec: TemplateSpec, problems: Problems, *, generates: bool = True) -> None:
    """Names are unique, references exist, one role generates, and users and assistants have roles.

    ``generates``: False where no answer is made, so that no role needs to generate.
    """
    placed = _placed(spec.round, spec.reserved_roles)
    names = [role.role for _, role in placed]
    counts = Counter(names)
    for number, (path, role) in enumerate(placed):
        if role.role and role.role in names[:number] and counts[role.role] > 1:
            problems.add((*path, "role"), f"role {shown(role.role)} is defined twice: use each name once in the file")
        if role.fallback_role is not None and role.fallback_role not in counts:
            problems.add(
                (*path, "fallback_role"),
                f"no role {shown(role.fallback_role)} in this template{suggestion(role.fallback_role, counts)}",
            )
    _check_generating(placed, problems, needed=generates)
    _check_mappings(spec, counts, problems)


def _check_generating(placed: list[tuple[Path, RoleSpec]], problems: Problems, *, needed: bool) -> None:
    """Exactly one role of the round generates."""
    generating = [(path, role) for path, role in placed if path[0] == "round" and role.generate]
    if needed and placed and not generating:
        problems.add(("round",), "no role has generate: true; add it to the role of the model's answer")
    for path, role in generating[1:]:
        problems.add(
            (*path, "generate"),
            f"{shown(generating[0][1].role)} generates, and only one role may: remove it from {shown(role.role)}",
        )


def _check_mappings(spec: TemplateSpec, counts: Counter[str], problems: Problems) -> None:
    for openai_role, wanted in spec.roles.items():
        if wanted and wanted not in counts:
            problems.add(
                ("roles", openai_role), f"no role {shown(wanted)} in this template{suggestion(wanted, counts)}"
            )
    names = role_names(spec)
    for openai_role in NEEDED_ROLES:
        wanted = names[openai_role]
        if counts and wanted not in counts and openai_role not in spec.roles:
            problems.add(
                ("round",),
                f"no role writes {openai_role} messages: name a role {wanted}, "
                f"or map one under `roles: {{{openai_role}: …}}`",
            )
