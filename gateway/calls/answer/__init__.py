"""The answer of one call.

``response``     the processing of the events that the client receives
``cut_answers``  the choices that are empty or cut off
``answer_check`` the check of an answer that must be JSON or a tool call
``stages``       checks of what an upstream has sent, and the count of tokens
``token_data``   vLLM's additions to an answer: log probabilities of the prompt, token ids, echo
"""
