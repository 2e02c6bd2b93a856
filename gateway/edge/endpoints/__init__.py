"""The endpoints that run or render a call.

answer  runs a call and writes the model's answer, whole or as a stream
call    reads a call, calls the endpoint, and records how the call ended
loglikelihood  the answer of /v1/loglikelihood
render  the answer of /v1/render
turns      the answer to a call with several turns
writer     makes the writer of one answer
tokenizer  /tokenize, /detokenize and /tokenizer_info
table   path, reader and writer of each endpoint
"""
