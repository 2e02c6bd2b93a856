"""The answer of one call.

``response``     the processing of the events that the client receives
``cut_answers``  the choices that are empty or cut off
``token_data``   vLLM's additions to an answer: log probabilities of the prompt, token ids, echo
"""
