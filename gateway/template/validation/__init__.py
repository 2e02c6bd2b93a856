"""Checks the content of a template file, reports every mistake, and returns a ``TemplateSpec``.

- ``template``  the entry function, and the check of examples
- ``meta``      ``kind: meta``
- ``prompter``  ``kind: prompter``
- ``jinja``     ``kind: jinja``
- ``tools``     the keys ``tools`` and ``thinking``
- ``problems``  collects mistakes while values are read
"""
