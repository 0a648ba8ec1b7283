"""Reproduction of the paper's evaluation: ``python -m reproduction`` from the checkout.

A *cell* is one method on one dataset at one code length with one seed. Each cell runs in a separate
process under a time limit, and its result is kept in a file, so that an interrupted run can be
resumed. One function, `measure.measure`, scores every method.
"""
