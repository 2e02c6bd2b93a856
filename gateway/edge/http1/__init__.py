"""Our own HTTP/1.1 server.

connection  one connection of a client: bytes in, requests out, their answers in order
request     the body and the answer of one request
server      all connections: accepting, timeouts, draining
state       what the connections of a server share
"""
