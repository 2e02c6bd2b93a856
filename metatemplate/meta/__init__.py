"""Templates of ``kind: meta`` with ``turns: natural``.

- ``renderer``      renders a dialogue into a string
- ``tools``         renders a dialogue with tools, calls and results into a string
- ``turn_order``    the order of messages and of further texts of the template
- ``api_messages``  renders messages, if the roles have ``api_role``, also with ``turns: opencompass``
"""
