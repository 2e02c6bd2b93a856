"""The fields of a request to an OpenAI-compatible server.

request_body    the fields that all bodies share
bos             the begin-of-sequence token
constraint      the field that constrains an answer to JSON
control_fields  fields by which a request could steer an engine
neutral_values  values that cannot change an answer, left out where the target does not know the field
"""
