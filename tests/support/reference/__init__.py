"""Behaviour of the reference packages that the gateway does not serve; used by the conformance cases."""
