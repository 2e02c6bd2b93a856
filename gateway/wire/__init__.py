"""OpenAI's JSON: requests in, responses out. No I/O.

error_object     errors
json             bodies: which JSON is accepted
logprobs         log probabilities in both forms
message_content  messages and prompts
request_fields   the fields of requests, with their ranges
requests         a body as a ``Call``
responses        answers as bodies and stream events
validation       checks the fields of a body
"""
