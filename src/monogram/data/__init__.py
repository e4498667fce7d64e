"""From a log of events to a sparse user-item matrix: reading, checking, merging, splitting."""
