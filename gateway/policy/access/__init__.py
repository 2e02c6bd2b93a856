"""Who may call, and how often.

``api_keys``     client keys, and the models that each key may use
``limits``       checks a call against the rate limits and the limits of concurrent calls
``rates``        requests and tokens per minute, as token buckets
``redis_rates``  token buckets in Redis, which several gateways share
``call_queue``   limits the concurrent calls; calls above the limit wait
"""
