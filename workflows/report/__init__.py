"""Reports on runs: one self-contained HTML page, and its pictures as PNG files.

May import `recipe`, `interop`, `trainer` and `storage`. To add a picture, write a function that returns a `Picture` and
call it in `build.py`.
"""
