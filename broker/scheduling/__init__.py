"""Long work in slices, periodic tasks, and the clock for durations. No reactor."""
