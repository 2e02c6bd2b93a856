"""Rendering of Hugging Face chat templates, byte for byte as ``transformers`` renders them (``kind: jinja``).

``renderer``                ``JinjaTemplate``: from a dialogue to a prompt
``variables``               the template's view of a request
``in_process``              which conversations are rendered in this process, and which in a subprocess
``attribution``             where each piece of a rendered text comes from
``transformers_reference``  the same dialogue rendered by ``transformers``, to compare with
``sandbox/``                the Jinja environment, the compiled template and the subprocess
``folder``                  the files of a model's folder: templates, special tokens, ids that end an answer
"""
