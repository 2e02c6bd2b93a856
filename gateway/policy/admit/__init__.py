"""Rules for requests.

``api_keys``        client keys and their models
``media``           media in messages
``parameters``      request parameters
``output_parsing``  how the answer is parsed
"""
