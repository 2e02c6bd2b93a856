"""Policies.

``access``   client keys, rate limits and queues
``markers``  markers of a template in texts of the client
``admit``    rules for the content of requests
``deliver``  sends requests to targets and handles failures
"""
