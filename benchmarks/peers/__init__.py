"""The contestants: a folder per job with a program per contestant, each the best known implementation of the job.

``python -m benchmarks.peers JOB.PROGRAM --outcome FILE --records N ...`` runs a program, in an environment that has the
packages of the contestant. Only the programs themselves import more than the standard library.
"""
