"""``kind: chat``: messages for targets that render themselves.

``passthrough``  the template, which changes no message
``messages``     checks of a dialogue, and the text of a message
"""
