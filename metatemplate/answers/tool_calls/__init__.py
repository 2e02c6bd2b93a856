"""Tool-call formats: how models write tool calls in their text, and the scanner that finds the calls.

- ``scanner``   divides a choice's text into content, calls and failed calls as it arrives
- ``format``    ``Format``, which describes a format, and ``Region``, a piece of text that may contain calls
- ``readers``   the closed set of ways in which calls are written
- ``registry``  the table of formats by name, from ``formats.yaml``
"""
