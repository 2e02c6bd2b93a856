"""OpenAI's JSON: requests in, responses out. No I/O.

error_object     errors
fields           the fields of requests, with their ranges
json             bodies: which JSON is accepted
logprobs         log probabilities in both forms
message_content  messages and prompts
requests         a body as a ``Call``
responses        answers as bodies and stream events
validation       checks the fields of a body
"""
