"""The endpoints that take a call for a model. One endpoint is one file, and its row below.

answer        runs a call and writes the model's answer, whole or as a stream
call          reads and admits a call, has it answered, and records it once
chat          POST /v1/chat/completions
completions   POST /v1/completions
embeddings    POST /v1/embeddings
endpoint      the columns of a row
render        POST /v1/render
"""

from gateway.edge.endpoints.chat import CHAT
from gateway.edge.endpoints.completions import COMPLETIONS
from gateway.edge.endpoints.embeddings import EMBEDDINGS
from gateway.edge.endpoints.render import RENDER

ENDPOINTS = (CHAT, COMPLETIONS, EMBEDDINGS, RENDER)
