"""Constants from measurements: kernel tables, profiles, serving runs, load tests."""
