"""Rules for requests.

``api_keys``        client keys, and the models that each key may use
``markers``         markers of the template in texts of the client
``marker_set``      the markers of a model, and the search for them
``media``           media in messages (images, audio, video, files)
``parameters``      request parameters
``output_parsing``  how the answer is parsed
"""
