"""The answer of one call.

``response``     the processing of the events that the client receives
``cut_answers``  the choices that are empty or cut off
``answer_check`` the validation of an answer that must be JSON
``token_data``   vLLM's additions to an answer: log probabilities of the prompt, token ids, echo
"""
