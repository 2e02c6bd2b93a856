"""Log-likelihoods of candidates.

``candidates``     the requests for a log-likelihood
``loglikelihood``  the scores of the candidates
"""
