"""Structured output: the schema of a client, and the check of an answer.

``response_format``  reads the client's ``response_format``
``limits``           refuses a schema that is too large, or that refers to another document or to itself without end
``strict``           the rules of ``strict: true``
``subschemas``       the schemas inside a schema, and their places
``checker``          checks schemas and answers in a subprocess with limits
``check_job``        the job of the subprocess
"""
