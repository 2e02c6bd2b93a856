"""The steps of ``gateway import``.

- ``sources``: the options, and the drafts of a source.
- ``build``: compares a draft with the source's own prompts over the matrix of ``gateway parity``, and adds examples.
- ``output``: chooses the paths, and writes the files.
"""
