"""The paths that run no call. They return facts about the gateway and its models.

version     /version, and the icon
commands    commands that people copy, for the page / and for the greeting
models      /v1/models and /tokenizer_info
monitoring  /health, /metrics and /status
openapi     /openapi.json
"""
