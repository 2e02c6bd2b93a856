"""The steps of ``gateway import``.

- ``sources``: reads the source file and makes its drafts.
- ``build``: compares a draft with the source's own prompts over the matrix of ``gateway parity``, and adds examples.
- ``output``: chooses the output paths and writes the files.
"""
