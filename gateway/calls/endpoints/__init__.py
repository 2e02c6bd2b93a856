"""The endpoints that run or render a call.

table    path, reader and function of each endpoint
context  one call while it is answered
sink     the receiver of the answer
cancellation  ends the task of a call, and records why
provenance    the x-gateway headers
answer   runs a call and sends the model's answer, whole or as a stream
responses  the answers of /v1/responses and /v1/responses/input_tokens
turns    the answer to a call with several turns
writer   makes the writer of one answer
loglikelihood  the answer of /v1/loglikelihood
render   the answer of /v1/render
generate_request  the answers of /v1/chat/completions/render and /v1/completions/render
tokenizer  /tokenize and /detokenize
tokenizing  token ids of prompts and conversations
"""
