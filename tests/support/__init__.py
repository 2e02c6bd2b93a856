"""What tests use: servers, engines, clients and references. None of it is a test of the gateway.

upstream           a model server with a mode for each fault and dialect
providers          servers in the dialects of API providers
engines            real engines with the demo model
harnesses          unmodified clients and evaluation harnesses
reference          what only the recorded cases of the original packages need
world              a gateway with an upstream, for the tests of one module
serving            a gateway in this process, on a free port
instances          random JSON values that a schema accepts
recording_backend  a backend that plays a script and keeps what it received
virtual_clock      an event loop whose time passes at once
certificates       certificates for TLS
events             events of answers
growth             a check of linear run time, by the ratio of two runs
random_schema      random JSON Schemas
"""
