"""The ASGI application of the configuration that ``GATEWAY_CONFIG`` names: ``uvicorn gateway.asgi:app``."""

import os

from gateway.core.errors import ConfigError, Problem
from gateway.server.application import create_app

if "GATEWAY_CONFIG" not in os.environ:
    raise ConfigError((Problem("GATEWAY_CONFIG", 0, "", "not set; name the configuration file, such as gateway.yaml"),))

app = create_app(os.environ["GATEWAY_CONFIG"])
