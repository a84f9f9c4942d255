"""Long work in slices, periodic tasks, and the clock for durations, all without a reactor."""
