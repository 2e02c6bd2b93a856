"""Policies: ``admit`` decides what is sent upstream, ``deliver`` how it is delivered."""
