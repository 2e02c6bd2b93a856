"""From the content of a template file to its spec, with every mistake.

- ``template``  the entry, and ``kind: chat``
- ``meta``      ``kind: meta``
- ``prompter``  ``kind: prompter``
- ``jinja``     ``kind: jinja``
- ``tools``     ``tools`` and ``thinking``
- ``examples``  ``examples``
- ``problems``  the mistakes found, and the reader of values
"""
