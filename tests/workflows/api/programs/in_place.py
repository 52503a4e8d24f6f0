"""Every stage, called on all ranks of an MPI job: python -m mpi4py in_place.py CATALOG OUT"""

import sys

import numpy as np

import gnnloom
from gnnloom.trainer.comm.agreement import CollectiveError

catalog, out = sys.argv[1:]
tiny = gnnloom.generate("tiny", "sbm", vertices=60, edges=300, classes=3, catalog=catalog)
gnnloom.partition(tiny, parts=2, method="block")
gnnloom.shard(tiny, parts=2)
run = gnnloom.train(tiny, hidden=8, epochs=4, run="first")
gnnloom.predict(run, out=out)
if run.config()["ranks"] != 2 or not np.array_equal(np.load(out), run.predictions()):
    raise SystemExit("not what was expected")
try:
    gnnloom.train(tiny, ranks=3, run="second")
except CollectiveError as error:
    if "this MPI job has 2" not in str(error):
        raise
else:
    raise SystemExit("three ranks of two")
