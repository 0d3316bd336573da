"""One replica: its run at a load, and the load it carries within its targets."""
