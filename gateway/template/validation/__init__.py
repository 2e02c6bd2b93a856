"""From the content of a template file to its spec, with every mistake.

- ``template``  the entry, and the examples
- ``meta``      ``kind: meta``
- ``prompter``  ``kind: prompter``
- ``jinja``     ``kind: jinja``
- ``tools``     ``tools`` and ``thinking``
- ``problems``  the mistakes found, and the reader of values
"""
