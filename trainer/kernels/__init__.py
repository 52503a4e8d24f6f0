"""Local products and element-wise work, written into buffers that they are given."""
