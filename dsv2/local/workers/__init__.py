"""Worker processes of a local run (``processes=``)."""
