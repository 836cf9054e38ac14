"""Rounds of faults, and the judge of the answers that processes got meanwhile.

Real processes use one bus while some are killed, paused and cut off; each records its calls and answers. Afterwards
`judge` reads these records and the data of the engines, and reports each broken promise with its evidence.
"""
