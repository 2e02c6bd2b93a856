"""Templates of ``kind: meta`` with ``turns: natural``.

- ``renderer``      a string: the general rendering
- ``tools``         the same with tools, calls and results
- ``turn_order``    the order of messages and of the template's own texts
- ``api_messages``  messages, for templates whose roles have ``api_role`` (both values of ``turns``)
"""
