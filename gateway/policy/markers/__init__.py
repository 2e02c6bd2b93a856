"""Markers of a template in texts of the client.

``marker_set``       the markers of a model, and the search for them
``marker_rule``      the policy for markers: what is changed, refused or reported
``role_boundaries``  renders a conversation and applies the policy to the prompt
"""
