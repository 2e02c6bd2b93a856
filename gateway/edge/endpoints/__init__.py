"""The endpoints that run or render a call.

table    path, reader and function of each endpoint
call     answers calls: admits a call, runs its endpoint, and records how the call ended
context  one call while it is answered
sink     the receiver of the answer
answer   runs a call and sends the model's answer, whole or as a stream
turns    the answer to a call with several turns
writer   makes the writer of one answer
loglikelihood  the answer of /v1/loglikelihood
render   the answer of /v1/render
tokenizer  /tokenize and /detokenize
"""
