"""Rendering of Hugging Face chat templates, byte for byte as ``transformers`` renders them (``kind: jinja``).

``renderer``                the class ``JinjaTemplate``, which turns a dialogue into a prompt
``variables``               the messages as the chat template gets them
``call_content``            the content of a message that has tool calls and no text
``in_process``              decides which conversations are rendered in this process, and which in a subprocess
``attribution``             finds out whether a piece of the prompt comes from the client or from the template
``probes``                  finds the texts around messages when a template is loaded
``sandbox/``                the Jinja environment, the compiled template and the subprocess
``folder``                  reads the chat templates, the special tokens and the end token ids in a model's folder
"""
