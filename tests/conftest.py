"""What holds for every test: frozen values are guarded, as the type checker sees them."""

from __future__ import annotations

from gateway.core import frozen

frozen.ENFORCED = True
