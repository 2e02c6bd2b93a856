"""``dataclass`` for values that are created for every call or event: frozen for the type checker, plain at run time.

A frozen dataclass sets each field through ``object.__setattr__``, and a call creates about forty values. With plain
fields, a call needs a fifth less time in the gateway. Equality and hash are the same as in a frozen dataclass. With
fast paths off, the fields are frozen at run time too.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gateway.core import fast_paths

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """Replace ``dataclasses.dataclass``. While fast paths are on, ``frozen`` only defines the hash."""
        if frozen and fast_paths.ENABLED:
            return dataclasses.dataclass(unsafe_hash=True, **options)
        return dataclasses.dataclass(frozen=frozen, **options)
