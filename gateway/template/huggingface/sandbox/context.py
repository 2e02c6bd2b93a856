"""Where is the purse while a template renders? In the context that every paid step is given."""

from __future__ import annotations

from jinja2.runtime import Context

from gateway.template.huggingface.sandbox.meter import Meter


class MeteredContext(Context):
    """The variables of one render, and its purse."""

    meter: Meter
