"""All steps of a call between admission and its backend.

``prepare``            the checks and the rendering
``dataset_prompts``    the conversation of a call that names a dataset prompt
``structured_output``  the format of an answer that must be JSON
``strict_call``        the format of a forced call of a tool with ``strict``
"""
