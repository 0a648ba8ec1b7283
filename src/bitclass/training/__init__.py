"""Training of the default learner: sums, closed form, refinement."""
