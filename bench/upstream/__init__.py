"""The mock engine behind every system under test: ``responses`` (fixed JSON) and ``server`` (with paced streams)."""
