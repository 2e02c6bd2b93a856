"""The readers of tool-call formats: each finds and reads calls that are written in one way.

- ``json_formats``, ``json_calls``    JSON
- ``python_calls``, ``literals``      Python
- ``lazyllm``                         LazyLLM's tokens and lines
"""
