"""The verbs of the command line without a folder of their own, one module each, named like its verb.

A module has a docstring (the help text), ``EXAMPLES`` and ``command``. A new verb also needs a row in ``gateway.cli``.
"""
