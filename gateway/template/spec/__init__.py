"""The keys of a template file, checked and frozen.

- ``template``  all kinds, roles, examples, and ``kind: jinja``
- ``tools``     ``tools`` and ``thinking``
- ``prompter``  ``kind: prompter``
"""
