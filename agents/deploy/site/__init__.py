"""Scenarios of real places: plans, cameras, homographies and recordings of other programs, and what is odd in them."""
