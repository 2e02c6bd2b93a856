"""The version of the gateway."""

from typing import Final

VERSION: Final = "0.1.0"
