"""OpenAI's Responses API, ``/v1/responses``: a request becomes a chat call, and the answer a list of items.

fields   the fields of a request and of its items
items    the items of ``input`` → chat messages
output   the events of an answer → output items and stream events
request  the body of a request → ``Call``
tools    the tools of a request → functions, and their names in the answer
writer   writes answers as response objects or stream events
"""
