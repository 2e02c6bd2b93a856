"""The steps of ``gateway import``.

- ``sources``: the options, and the drafts of a source.
- ``verdict``: compares a template with the source's own prompts.
- ``build``: adds examples to a draft, and checks the file.
- ``output``: chooses the paths, and writes the files.
"""
