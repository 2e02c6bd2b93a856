"""All steps of a call between admission and its backend.

``prepare``            the checks and the rendering
``dataset_prompts``    the conversation of a call that names a dataset prompt
``reasoning_replay``   the reasoning that a client has left out of earlier turns
``structured_output``  what an answer must be: JSON, or a tool call
``forced_call``        the format of a forced tool call
"""
