"""Training on RLlib: the env runners, the learner, the loop."""
