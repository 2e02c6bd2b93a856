"""The formats of local models, without a server: messages to the exact prompt, and a model's text to an answer.

The package imports nothing of ``gateway``.

``errors``  the errors of the package, without HTTP
"""
