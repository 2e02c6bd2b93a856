"""Policies: ``admit`` checks and changes requests; ``deliver`` sends requests to targets and handles failures."""
