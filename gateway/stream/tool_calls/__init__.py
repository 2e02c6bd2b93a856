"""Tool-call formats: how models write calls in their text, and the scanner that finds the calls.

- ``scanner``     divides a choice's text into content, calls and failed calls as it arrives
- ``format``      the description of a format, and the region of text that its rule follows
- ``json_formats``, ``pythonic``, ``lazyllm``: the formats
- ``json_calls``  reads JSON as calls
- ``literals``    reads Python's literals
- ``registry``    the table of formats by name
"""
