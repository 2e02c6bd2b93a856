"""Tools for templates: import and comparison. No module that serves a call imports this.

importer      reads templates and dataset prompts of other formats
importing     ``gateway import``
parity        compares two templates by their prompts
engine        ``gateway check --live --deep``
comparing     ``gateway render``, ``gateway diff`` and ``gateway parity``
chat_folders  the chat template in a model's folder
"""
