"""Markers of a template in texts of the client.

``marker_set``       the markers of a model, and the search for them
``marker_rule``      the policy for markers: what is changed, refused or reported
``made_markers``     the markers that a chat template makes of texts that contain none
``token_splits``     how a tokenizer reads changed markers
``prompt_tokens``    encodes a prompt, so that control tokens come from text of the template only
``prompt_ids``       the token ids of prompts that are always sent as token ids
``role_boundaries``  renders a conversation and applies the policy to the prompt
"""
