"""The version of the gateway, and its build."""

from typing import Final

VERSION: Final = "0.1.0"
BUILD: Final = "pure" if __file__.endswith(".py") else "compiled"
"""``compiled``: the modules that a call passes, this one included, were compiled to C."""
