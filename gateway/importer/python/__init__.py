"""Reads the values of a Python file from its syntax tree. Nothing is imported or executed.

- ``values``: the expressions whose value is not known, and the functions of a file.
- ``operations``: the operators, functions and methods that are evaluated, each with a limit on its result.
- ``evaluator``: evaluates the statements and expressions of a file, and of the files in its ``read_base`` blocks.
"""
