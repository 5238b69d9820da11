"""One operator in one subtask, and the chain that it is a part of."""
