"""Rules for requests.

``api_keys``        client keys, and the models that each key may use
``media``           media in messages (images, audio, video, files)
``parameters``      request parameters
``output_parsing``  how the answer is parsed
"""
