"""The readers of tool-call formats: each finds and reads calls that are written in one way.

- ``json_calls``      JSON, perhaps with the name before it
- ``parameters``      arguments one by one between texts; ``argument_types`` gives them their types
- ``quoted``          bare keys and a text as quote
- ``channels``        messages with a channel and a recipient
- ``python_calls``    calls in Python; ``literals`` reads their values
- ``lazyllm``         LazyLLM's tokens and lines
"""
