"""Reads templates of other formats. A source is read as text or syntax, never executed, and becomes a ``Draft``.

- ``source``: one source file, of bounded size, and the files beside it.
- ``kinds``: recognises the format of a file.
- ``huggingface``, ``opencompass``, ``lazyllm``, ``ollama``, ``fastchat``: read one format each.
- ``python_file``, ``go_template``: the languages of these formats.
- ``turns``: finds the begin and end of every role by probing a renderer.
- ``draft``: keys, notes and reference of the template file to be.
- ``yaml_writer``: a draft as YAML.
"""
