"""Checks the content of a template file, reports every mistake, and returns a ``TemplateSpec``.

- ``template``  the entry function, and the check of examples
- ``meta``      ``kind: meta``
- ``prompter``  ``kind: prompter``
- ``jinja``     ``kind: jinja``
- ``tools``     the keys ``tools`` and ``thinking``
- ``file_types``  how pydantic reads the types of the keys
- ``problems``  collects mistakes while values are read
"""
