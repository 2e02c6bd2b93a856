"""``gateway import``.

- ``import``: the verb.
- ``import_options``: its options.
- ``sources``: reads the source file and makes its drafts.
- ``build``: compares a template with the source's own prompts over the matrix of ``gateway parity``, adds examples, and
  checks the file.
- ``output``: chooses the output paths and writes the files.
"""
