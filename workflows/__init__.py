"""The command line and everything that runs whole workflows.

May import every other top-level package. Rooms, from the bottom up: `formatting` (sizes as text), `interop` (other
programs), `recipe` (what to run), `run`, `report` and `doctor`, `api` (the Python API) and `cli`. A room imports only
rooms below it. The folder `gnnloom` on top is installed as the package `gnnloom` itself.
"""
