"""What the policy sees of its history. Views are made of recorded steps only, never invented."""
