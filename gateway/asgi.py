"""The ASGI application for ``uvicorn gateway.asgi:app``. ``GATEWAY_CONFIG`` is the path of the configuration file."""

import os

from gateway.core.errors import ConfigError, Problem
from gateway.server.application import create_app

if "GATEWAY_CONFIG" not in os.environ:
    raise ConfigError((Problem("GATEWAY_CONFIG", 0, "", "not set; name the configuration file, such as gateway.yaml"),))

app = create_app(os.environ["GATEWAY_CONFIG"])
