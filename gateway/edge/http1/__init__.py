"""Our own HTTP/1.1 server.

connection  one client connection: parses requests, and sends their answers in order
request     the body and the answer of one request
server      accepts connections, checks their timeouts, and drains them
state       the state that the connections of a server share
"""
