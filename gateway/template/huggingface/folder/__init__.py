"""The files of a model's folder that decide a prompt, read as the tokenizers of ``transformers`` 5 read them.

``chat_template``    all of them: templates, special tokens, ids that end an answer
``named_templates``  the chat templates by name, and which one is used where there are several
``special_tokens``   the special tokens that a template gets as variables
``reader``           reads each file once
"""
