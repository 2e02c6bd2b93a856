"""The paths that run no call. They return facts about the gateway and its models.

home        /, a page for people, its icon, and /version
models      /v1/models
monitoring  /health, /metrics and /status
openapi     /openapi.json
"""
