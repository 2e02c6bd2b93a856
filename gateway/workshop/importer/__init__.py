"""Reads templates and dataset prompts of other formats.

A source file is parsed, but not executed, except where the user names a Python for it. The result is a ``Draft``.

- ``source``: one source file of limited size, and the other files in its folder.
- ``kinds``: recognises the format of a file.
- ``huggingface``, ``opencompass``, ``lazyllm``, ``ollama``: read one format each.
- ``dataset``: reads the datasets of an OpenCompass or AISBench config.
- ``python_file``, ``go_template``: parse Python files and Go templates, in which some of these formats are written.
- ``python``: reads the plain values of a Python file from its syntax tree.
- ``environment``: loads a config with the Python of another environment, which executes it.
- ``turns``: finds the begin and end of every role by probing a renderer.
- ``draft``: the keys, notes and reference of a template file before it is written.
- ``yaml_writer``: writes a draft as YAML.
"""
