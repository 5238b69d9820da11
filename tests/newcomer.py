"""``./run newcomer``: the checks that a new contributor runs after cloning, with every Python of this machine.

The checkout is cloned into a new directory called ``dsv2``, and ``./run --python PYTHON test`` is run there: all tests
with the oldest and the newest Python, the suites without Spark with those in between. This module imports only the
standard library, because creating the environments is part of the test.
"""

from __future__ import annotations
