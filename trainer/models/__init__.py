"""Graph neural networks over any distributed operator."""
