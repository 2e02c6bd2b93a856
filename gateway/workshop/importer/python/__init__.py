"""Reads the plain values of a Python file from its syntax tree. Nothing is imported or executed.

- ``values``: the expressions whose value is not known.
- ``reader``: reads the statements of a file, and of the files in its ``read_base`` blocks.
"""
