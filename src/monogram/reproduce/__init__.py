"""Reproduce the tables of papers: the printed numbers beside the numbers of this library.

A paper is a module of data in `papers/`: tables of rows, each a model with its settings by data set, and the numbers as
printed. One runner fits and measures the rows, which gives cells; a report shows the cells.
"""
