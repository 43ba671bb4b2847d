"""Training: options, jobs, run directories, resuming, curves."""
