"""How do foreign formats become ours? Each source is read as text or syntax, never run, and becomes a draft.

``source``        a file that may be hostile: bounded, with the files beside it
``python``        Python as syntax: names, literals and calls, nothing executed
``draft``         what a source became: the keys of a template file, and all that has to be said of it
``turns``         the begin and end of every role, found by probing something that renders
``written``       a draft as YAML, in the style of our own files
``kinds``         which format is this?

``hugging``, ``opencompass``, ``lazyllm``, ``ollama`` and ``fastchat`` read one format each.
"""
