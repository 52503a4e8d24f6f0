"""Batches of sampled vertices for models of other libraries or users, in their own training loops."""
