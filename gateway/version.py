"""The version of the gateway."""

VERSION = "0.1.0"
