"""Policies: ``admit`` decides which request is sent to an engine; ``deliver`` decides how the answer is obtained."""
