"""Policies.

``access``   client keys, rate limits and queues
``admit``    rules for the content of requests
``deliver``  sends requests to targets and handles failures
"""
