"""Rounds of faults, and the checker of what everyone was told meanwhile.

Real processes use one bus while others are killed, halted and cut off; each writes down what it was told. Afterwards
`judge` reads these notes and what the engines held, and says which promise was broken, where, and what shows it.
"""
