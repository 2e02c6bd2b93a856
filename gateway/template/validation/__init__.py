"""From the content of a template file to its spec, with every mistake.

- ``template``  the entry, ``kind: meta`` and ``kind: chat``
- ``prompter``  ``kind: prompter``
- ``jinja``     ``kind: jinja``
- ``roles``     ``round``, ``reserved_roles``, ``roles``
- ``tools``     ``tools`` and ``thinking``
- ``examples``  ``examples``
- ``keys``      ``eos_token_id`` and ``stop``
- ``problems``  the mistakes found, and readers of values
"""
