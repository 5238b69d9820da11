"""The contestants: a folder per job, a program per contestant, each the best known way to write the job there.

``python -m benchmarks.peers JOB.PROGRAM --outcome FILE --records N ...`` runs one of them, in an environment that has
the package that it is written for. Nothing here but the programs themselves imports more than the standard library.
"""
