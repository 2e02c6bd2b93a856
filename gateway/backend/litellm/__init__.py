"""``speaks: litellm``: providers whose API is not OpenAI's, through LiteLLM's SDK.

backend   calls of the SDK, and their results as events
sdk       the import of LiteLLM, and its data about a provider
dropped   what LiteLLM leaves out of a request, for each provider
errors    LiteLLM's exceptions → the gateway's errors
"""
