"""``gateway render --as``, and servers as the reference of ``gateway parity``."""
