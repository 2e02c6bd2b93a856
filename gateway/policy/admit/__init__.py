"""Rules for requests.

``api_keys``        client keys, and the models that each key may use
``limits``          checks a call against the rate limits and the limits of concurrent calls
``rates``           requests and tokens per minute, as token buckets
``redis_rates``     token buckets in Redis, which several gateways share
``call_queue``      limits the concurrent calls; calls above the limit wait
``markers``         the policy for markers of the template in texts of the client
``marker_set``      the markers of a model, and the search for them
``role_boundaries`` renders a conversation and applies the policy for markers to the prompt
``media``           the policy for media in messages (images, audio, video, files)
``media_files``     reads the media files that messages name
``parameters``      the policy for request parameters
``output_parsing``  chooses how the answer is parsed
"""
