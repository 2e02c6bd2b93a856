"""How is a frozen value made quickly? By whoever checks the types; at run time it is a plain slotted one.

A frozen dataclass sets each field through ``object.__setattr__``, which costs six times a plain assignment, and a call
makes some forty values with two hundred fields. So values that are made for every call or event take ``dataclass`` from
here: to the type checker it *is* ``dataclasses.dataclass``, and it refuses every assignment to a frozen field. At run
time ``frozen=True`` keeps equality and the hash, and leaves the guard out, unless ``ENFORCED`` says otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

ENFORCED = False
"""Guard the fields at run time too. Set it before anything else of the gateway is imported; the tests do."""

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """``dataclasses.dataclass``, with ``frozen`` as this module understands it."""
        if frozen and not ENFORCED:
            return dataclasses.dataclass(unsafe_hash=True, **options)
        return dataclasses.dataclass(frozen=frozen, **options)
