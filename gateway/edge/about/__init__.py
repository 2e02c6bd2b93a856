"""The paths that take no call: they answer with facts about the gateway and its models.

health   /health
home     /, a page for people, and /version
metrics  /metrics
models   /v1/models
openapi  /openapi.json
"""
