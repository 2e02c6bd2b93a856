"""HTTP/1.1 client for the servers of models.

client             HttpClient, connection pools, endpoints
network            pools of a proxy, and trust in further certificates
connection         one connection and the response that is being read
response_headers   the header fields of one response
"""
