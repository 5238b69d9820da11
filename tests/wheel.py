"""``./run wheel``: build the wheel, install it into a fresh environment, and use it as users do.

A user has the wheel and the documents. The examples are not part of the wheel, but they need no more than it does, so
they are copied. This checks, in an empty directory and with nothing of the checkout on the path:

* what the wheel contains, and that its license files and type information are there;
* that the program in the README runs and prints what the README says;
* that the command ``dsv2`` is installed, and that the server of the dashboard has its page;
* that the hot topics example runs on Spark;
* with ``--suites``, the property tests and the conformance programs on the local runtime.

This module imports the standard library only: it runs before anything is installed.
"""

from __future__ import annotations
