"""Robot demonstrations in LeRobot format: reading, decoding, windows, statistics, normalisation, sampling, loading."""
