"""Work in slices, periodic tasks, and the clock for durations. No reactor."""
