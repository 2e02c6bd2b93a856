"""Rules for requests.

``api_keys``        client keys, and the models that each key may use
``limits``          limits of one call: rates, and concurrent calls
``rates``           requests and tokens per minute, as token buckets
``redis_rates``     the token buckets of several gateways, in Redis
``call_queue``      limits the concurrent calls; further calls wait
``markers``         markers of the template in texts of the client
``marker_set``      the markers of a model, and the search for them
``media``           media in messages (images, audio, video, files)
``parameters``      request parameters
``output_parsing``  how the answer is parsed
"""
