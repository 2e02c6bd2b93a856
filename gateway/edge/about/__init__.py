"""The paths that run no call. They return facts about the gateway and its models.

health      /health
home        /, a page for people, and /version
models      /v1/models
monitoring  /metrics and /status
openapi     /openapi.json
"""
