"""Planning: the cost of every solver, the choice among solvers, and the message where none fits the memory.

Cost functions take the size of a log and plain options, and know no model. The solvers do not import this package.
"""
