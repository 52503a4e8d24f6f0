"""Batches of sampled vertices for models that other libraries or users wrote, in loops of their own."""
