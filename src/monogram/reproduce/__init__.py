"""The papers' tables: what they print, beside what this library gets.

A paper is data (`papers/`): tables of rows, each a model with its settings, on data sets, with the numbers as printed.
One runner turns rows into cells; a report shows them.
"""
