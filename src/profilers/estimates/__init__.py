"""What a profile will cost in time, said before it is run and without a GPU."""
