"""Policies: ``admit`` decides what is sent to an engine; ``deliver`` decides how the answer is obtained."""
